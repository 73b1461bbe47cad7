"""Scratch folders of the pytest plugin, and what its reports show; no guest is needed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.pytest_plugin import evidence
from bluebridge.host_tools.pytest_plugin.scratch import ScratchBase, folder_name
from bluebridge.images.cache import HOME

pytest_plugins = ["pytester"]

TESTS = """
    import pytest
    from bluebridge.host_tools.errors import LabError

    def test_good(scratch):
        (scratch / "note").write_text("good")

    @pytest.mark.parametrize("what", ["a/b"])
    def test_bad(scratch, what):
        (scratch / "note").write_text("bad")
        raise LabError("guest a: it broke", transcript="\\n".join(f"line {n}" for n in range(900)))

    @pytest.fixture
    def falling(scratch):
        yield
        raise ValueError("late")

    def test_late(falling):
        pass
"""


def _kept(base: Path) -> set[str]:
    return (
        {path.name for run in base.iterdir() for path in run.iterdir()} if base.exists() else set()
    )


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("failed", {"test_it-test_bad-a-b", "test_it-test_late"}),
        ("always", {"test_it-test_good", "test_it-test_bad-a-b", "test_it-test_late"}),
        ("never", set()),
    ],
)
def test_keeping(pytester: pytest.Pytester, keep: str, kept: set[str]) -> None:
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\nbluebridge_scratch = scratches\nbluebridge_keep = always\n")
    result = pytester.runpytest(f"--bluebridge-keep={keep}")
    result.assert_outcomes(passed=2, failed=1, errors=1)
    assert _kept(pytester.path / "scratches") == kept
    for name in kept:
        result.stdout.fnmatch_lines([f"kept: *scratches/*/{name}"])
    assert kept or not any((pytester.path / "scratches").iterdir())


def test_folders_stand_among_those_of_pytest_by_default(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    pytester.runpytest(f"--basetemp={pytester.path / 'temp'}")
    assert (pytester.path / "temp" / "bluebridge" / "test_it-test_bad-a-b" / "note").exists()
    assert not (pytester.path / "temp" / "bluebridge" / "test_it-test_good").exists()


def test_a_failure_shows_its_transcript_and_its_folder(pytester: pytest.Pytester) -> None:
    """The end of a long transcript; all of it is in the folder."""
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\nbluebridge_scratch = scratches\n")
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(
        [
            "E * bluebridge.host_tools.errors.LabError: guest a: it broke",
            "*- bluebridge: guest a: it broke -*",
            "... 500 lines before, all of them in */test_it-test_bad-a-b/transcript.txt",
            "line 500",
            "line 899",
            "*- bluebridge: scratch folder -*",
            "*/test_it-test_bad-a-b",
            "FAILED test_it.py::test_bad* - bluebridge.host_tools.errors.La*",
        ]
    )
    (whole,) = (pytester.path / "scratches").glob("*/*/transcript.txt")
    assert len(whole.read_text().splitlines()) == 900


ONCE = """
    from bluebridge.host_tools.errors import LabError

    def test_once(scratch):
        tried = scratch.parent / "tried"
        again = tried.exists()
        tried.touch()
        (scratch / "note").write_text(f"again: {again}")
        if not again:
            raise LabError("guest a: it stood still", transcript="what it said")
"""


def test_a_test_that_is_run_again_leaves_both_folders_and_the_first_report(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it=ONCE)
    pytester.makeini("[pytest]\nbluebridge_scratch = scratches\n")
    result = pytester.runpytest("--reruns=1", "--rerun-show-tracebacks")
    result.assert_outcomes(passed=1)
    told = "*guest a: it stood still"
    result.stdout.fnmatch_lines(
        [told, "what it said", "*/test_it-test_once", "*1 passed, 1 rerun*"]
    )
    notes = (pytester.path / "scratches").glob("*/*/note")
    assert sorted(note.read_text() for note in notes) == ["again: False", "again: True"]


ERRORS = """
    import pytest
    from bluebridge.host_tools.krping import krping_command as command

    def ask(call):
        return call()

    def test_direct(lab):
        ask(lambda: command.KrpingRequest.parse("server,port=1,nonsense", "client"))

    def test_as_a_cause(lab):
        try:
            command.KrpingRequest.parse("client", "client")
        except Exception as error:
            raise ValueError("mine") from error

    @pytest.fixture
    def setup(lab):
        command.KrpingRequest.parse("nonsense", "")

    def test_setup(setup):
        pass
"""


def test_tracebacks_end_where_the_users_code_ends(pytester: pytest.Pytester) -> None:
    """No frame of this package, of the causes neither; --full-trace has them all."""
    pytester.makepyfile(test_it=ERRORS)
    result = pytester.runpytest()
    result.assert_outcomes(failed=2, errors=1)
    shown = result.stdout.str()
    assert "host_tools/krping/krping_command.py" not in shown
    assert "OptionError" not in shown
    result.stdout.fnmatch_lines(["test_it.py:8: *", "test_it.py:5: *", "test_it.py:8: UsageError"])
    result.stdout.fnmatch_lines(["*test_it.py:12: UsageError", "*ValueError: mine"])
    assert "host_tools/krping/krping_command.py" in pytester.runpytest("--full-trace").stdout.str()


def test_an_interrupted_test_keeps_its_folder(tmp_path: Path) -> None:
    """Nobody knows how it would have ended."""
    base = ScratchBase(tmp_path / "base", "failed")
    over, interrupted = base.make("test_a.py::test_one"), base.make("test_a.py::test_two")
    over.tests.append("one")
    interrupted.tests.append("two")
    base.judge("one", failed=False)
    assert base.close() == [interrupted.path]
    assert [path.name for path in base.root.iterdir()] == ["test_a-test_two"]


def test_a_shared_folder_is_kept_for_one_failure(tmp_path: Path) -> None:
    base = ScratchBase(tmp_path / "base", "failed")
    shared = base.make("test_a.py")
    shared.tests += ["one", "two", "three"]
    for name in shared.tests:
        base.judge(name, failed=name == "two")
    assert shared.path.exists()
    shared.over = True
    base.judge("four", failed=False)
    assert base.kept == [shared.path]


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("tests/vm/test_a.py::TestB::test_c[x/y-1]", "test_a-TestB-test_c-x-y-1"),
        ("test_a.py", "test_a"),
        ("test_a.py::test_b[../..]", "test_a-test_b"),
        ("test_a.py::test_b[" + "x" * 300 + "]", "test_a-test_b-" + "x" * 66),
        ("::..", "test"),
    ],
)
def test_names_of_folders(node: str, name: str) -> None:
    assert folder_name(node) == name


def test_names_are_never_taken_twice(tmp_path: Path) -> None:
    base = ScratchBase(tmp_path, "never")
    names = [base.make("test_a.py::test_b").path.name for _ in range(3)]
    assert names == ["test_a-test_b", "test_a-test_b-2", "test_a-test_b-3"]


FAILING = """
    import pytest
    from bluebridge.device.buslog.writer import FileLog
    from bluebridge.device.layout.buslog import Kind
    from bluebridge.device.layout.events import Fact
    from bluebridge.host_tools.errors import LabError
    from bluebridge.host_tools.pytest_plugin.scratch import BEGINS, mark_of

    def drop(log, rule, size):
        values = {"verb": "drops", "direction": "out", "message": "packet", "operation": "WRITE"}
        log.tell(0, Fact.RULE, rule=rule, bytes=size, **values)

    def test_bad(scratch, request):
        (scratch / "console-a.log").write_bytes(b"\x1b[2J\x07Kernel panic <&> here")
        log = FileLog(scratch / "bus")
        log.device("a")
        log.tell(0, Fact.MARK, text="before the test")
        drop(log, 9, 777)
        log.tell(0, Fact.COMMAND, name="INIT_HCA", status="BAD_PARAM")
        log.tell(0, Fact.MARK, text=mark_of(request.node.nodeid, BEGINS))
        log.tell(0, Fact.MARK, text="in the test")
        for number in (1, 2):
            drop(log, 3, number)
        log.tell(0, Fact.NAMED_FAULT, fault=4, name="cmd-error", what="RTR2RTS_QP")
        log.tell(0, Fact.COMMAND, name="RTR2RTS_QP", status="BAD_INPUT")
        log.tell(0, Fact.COMMAND, name="NOP", status="OK")
        log.close()
        raise LabError("guest a: it broke", transcript="what insmod said")

    def test_message(scratch):
        pytest.fail("no traceback", pytrace=False)

    def test_good(scratch):
        pass
"""


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "1"], marks=pytest.mark.full)])
def test_sections_and_places_of_a_failed_test_are_in_junit_xml(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    """Once on the terminal, and in the text that CI systems show of a failure."""
    monkeypatch.setenv("PYTHONPATH", str(HOME), prepend=os.pathsep)
    pytester.makepyfile(test_it=FAILING)
    pytester.makeini("[pytest]\nbluebridge_scratch = kept\n")
    result = pytester.runpytest_subprocess("--junitxml=report.xml", *workers)
    result.assert_outcomes(passed=1, failed=2)
    assert result.outlines.count("what insmod said") == 1
    cases = {
        case.attrib["name"]: case
        for case in ElementTree.parse(pytester.path / "report.xml").iter("testcase")
    }
    failure = cases["test_bad"].find("failure")
    assert failure is not None and failure.text is not None
    assert "guest a: it broke" in failure.attrib["message"]
    for part in ("- bluebridge: guest a: it broke -", "what insmod said", "end of console-a.log"):
        assert part in failure.text
    assert "Kernel panic <&> here" in failure.text
    told = cases["test_bad"].iter("property")
    found = [(each.attrib["name"], each.attrib["value"]) for each in told]
    places = dict(found)
    folder, page = Path(places["bluebridge_scratch"]), Path(places["bluebridge_page"])
    assert page.parent == folder and page.name == "test_it-test_bad.html"
    assert str(page) in failure.text and str(folder) in failure.text
    faults = [value for name, value in found if name == "bluebridge_faults"]
    assert faults == [
        "a: 2 times, last rule 3 drops (out): packet WRITE bytes=2 (event 6)",
        "a: once fault 4 cmd-error: RTR2RTS_QP (event 7)",
    ]
    request = places["bluebridge_failed_request"]
    assert re.fullmatch(r"a: RTR2RTS_QP.*: BAD_INPUT \(event 8, after \d+\.\d{6} s\)", request)
    for part in (*faults, request):
        assert part in failure.text
    dmesg = (folder / "dmesg-a.txt").read_text()
    assert dmesg.startswith(r"\x07Kernel panic <&> here")
    assert "guest a was not asked for its messages (it does not run any more)" in dmesg
    assert "end of dmesg-a.txt" in failure.text and "was not asked" in failure.text
    text = page.read_text()
    assert "in the test" in text and "before the test" not in text
    message = cases["test_message"].find("failure")
    assert message is not None and "scratch folder" in (message.text or "")
    assert [each.attrib["name"] for each in cases["test_message"].iter("property")] == [
        "bluebridge_scratch"
    ]
    assert not list(cases["test_good"].iter("property"))


def test_a_guest_that_does_not_answer_leaves_its_console(tmp_path: Path) -> None:
    """It ended, or it hangs: the report waits for neither, and the file says what it is."""
    ended: Any = SimpleNamespace(name="a", trouble=lambda: LabError("guest a: QEMU ended"))
    with socket.socket(socket.AF_UNIX) as silent, mock.patch.object(evidence, "_SECONDS", 0.3):
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        sockets = [tmp_path / "agent"]
        hangs: Any = SimpleNamespace(name="b", trouble=lambda: None, agent_sockets=sockets)
        for name in ("a", "b"):
            (tmp_path / f"console-{name}.log").write_bytes(b"\x1b[31mOops\x1b]0;x\r\n")
        evidence.keep_kernel_messages([ended, hangs], tmp_path)
    for name, why in (("a", "QEMU ended"), ("b", "its agent does not answer within 0 s")):
        text = (tmp_path / f"dmesg-{name}.txt").read_text()
        assert text.startswith("Oops\\x1b]0;x\n\n-- guest ")
        assert f"was not asked for its messages (guest {name}: {why}" in text
    (tmp_path / "dmesg-a.txt").write_text("as it was asked before it ended")
    evidence.keep_kernel_messages([], tmp_path)
    assert (tmp_path / "dmesg-a.txt").read_text() == "as it was asked before it ended"


def test_what_a_guest_prints_is_kept_where_the_locale_has_ascii_only(tmp_path: Path) -> None:
    """Also with the host's own alphabet, whatever that is, the report of a failure is made."""
    (tmp_path / "console-a.log").write_bytes(b"\xff oops")
    program = f"""
from pathlib import Path
from types import SimpleNamespace
from bluebridge.host_tools.pytest_plugin import evidence, session
folder = Path({str(tmp_path)!r})
evidence.keep_kernel_messages([], folder)
session._transcript(1000 * (chr(0xFFFD) + " oops\\n"), [SimpleNamespace(path=folder)])
"""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words, environment = [sys.executable, "-c", program], {**os.environ, **ascii_only}
    subprocess.run(words, env=environment, cwd=HOME, check=True)
    for name in ("dmesg-a.txt", "transcript.txt"):
        assert (tmp_path / name).read_text(encoding="utf-8").startswith("\ufffd oops")


def test_no_places_of_what_is_not_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=FAILING)
    pytester.runpytest("--junitxml=report.xml", "--bluebridge-keep=never")
    report = ElementTree.parse(pytester.path / "report.xml")
    names = {each.attrib["name"] for each in report.iter("property")}
    assert names == {"bluebridge_faults", "bluebridge_failed_request"}
    failure = next(report.iter("failure"))
    assert "removed at the end" in (failure.text or "") and ".html" not in (failure.text or "")
