"""The pytest plugin in a project of a user's own, far from this repository, with real guests."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.models.lab_commands import alive
from tests.models.plugin_project import Project
from tests.vm.conftest import BOOT_SECONDS, ROOT

MINE = """
import time

import pytest
from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.errors import LabError

PIDS = {}

def test_good(guest_a, guest_b, buslog, scratch, lab):
    assert [guest.run("hostname").text for guest in (guest_a, guest_b)] == ["a", "b"]
    assert buslog.wait_for(kind="config", guest="b").guest == "b"
    buslog.mark("half way")
    assert buslog.wait_for(kind="note", containing="half way")
    assert buslog.records(containing="test_good begins") and buslog.activities("config access")
    names = {"bus", "console-a.log", "console-b.log", "qemu-a.log", "qemu-b.log", "server.log"}
    assert names <= {path.name for path in scratch.iterdir()}
    with lab.pair(hca=False, names=("a2", "b2")) as own:
        assert own.b.run("hostname").text == "b2"
        assert guest_a.run("hostname").text == "a"

OPENS = (
    "from bluebridge.guest.bus.vfio import VfioBus\\n"
    "from bluebridge.guest.providers import open_device\\n"
    "open_device(VfioBus())\\n"
)

def test_bad(guest_a, guest_b, faults):
    for guest in (guest_a, guest_b):
        guest.run(f"echo '<6>a word of guest {guest.name}' > /dev/kmsg")
    with faults.command_fails(opcode="QUERY_FW", status="BAD_RESOURCE"):
        assert guest_a.run(["python3", "-c", OPENS], check=False).status != 0
    guest_a.run("echo out; echo err >&2; exit 7")

def test_panic(guest_b):
    with pytest.raises(LabError):
        guest_b.run("echo c > /proc/sysrq-trigger; sleep 60")

@pytest.mark.may_crash
def test_wanted_panic(guest_b):
    with pytest.raises(LabError, match="panicked"):
        guest_b.run("echo c > /proc/sysrq-trigger; sleep 60")

def test_untouched(pair):
    PIDS["untouched"] = [guest.pid for guest in pair.machines]

def test_clean(pair, buslog):
    assert [guest.pid for guest in pair.machines] == PIDS["untouched"]
    assert list(buslog) == []
    pair.a.run("true")

def test_new(pair):
    assert [guest.pid for guest in pair.machines] != PIDS["untouched"]

@pytest.mark.cold_boot
@pytest.mark.devices()
@pytest.mark.machine(cpus=1, memory_mib=512, hugepages=0)
def test_wishes(guest_a):
    said = guest_a.run("nproc; lspci -n; grep MemTotal /proc/meminfo; cat /proc/cmdline").text
    assert said.startswith("1\\n") and "15b3" not in said and "bluebridge.host=a" in said
    assert int(said.partition("MemTotal:")[2].split()[0]) < 512 * 1024

def test_a_log_that_stops(lab):
    with lab.pair(hosts="ab", stop_on="kind=note and enough") as other:
        other.server.tell("mark enough")
        end = time.monotonic() + 30
        while not (stopped := LogReader(other.logs).stopped) and time.monotonic() < end:
            time.sleep(0.05)
    assert stopped.startswith("kind=note and enough: event ")
"""
SHARED = """
import pytest

pytestmark = pytest.mark.shared_pair

def test_first(guest_a):
    guest_a.run("echo first > /tmp/mark")

def test_second(guest_a, buslog):
    assert guest_a.run("cat /tmp/mark").text == "first"
    assert list(buslog) == []
    assert False, "and now something else"

def test_third(guest_a):
    guest_a.run("test ! -e /tmp/mark")
"""


def test_a_project_of_its_own(project: Project) -> None:
    project.write("test_mine.py", MINE)
    project.write("test_shared.py", SHARED)
    said = project.run()
    bad = {"test_bad", "test_panic", "test_second"}
    outcomes = project.outcomes()
    assert {name for name, outcome in outcomes.items() if outcome != "passed"} == bad, said
    assert set(outcomes.values()) == {"passed", "failure"}

    kept = project.kept()
    assert set(kept) == {"test_mine-test_bad", "test_mine-test_panic", "test_shared"}
    for folder in kept.values():
        assert f"kept: {folder}\n" in said
        assert (folder / "bus" / "meta.json").exists() and (folder / "server.log").exists()
    assert "Kernel panic" in (kept["test_mine-test_panic"] / "console-b.log").read_text()

    assert (
        "AgentCommandFailed: guest a: `echo out; echo err >&2; exit 7` ended with status 7" in said
    )
    assert "\nout\nerr\n" in said
    assert "\nguest b: the guest's kernel panicked (Kernel panic - not syncing: sysrq" in said
    assert "shared by test_shared.py::test_first, test_shared.py::test_second\n" in said
    assert "/host_tools/" not in said
    told = project.properties("test_bad")
    once = r"a: once fault 1 command-fails: QUERY_FW \(event \d+\)"
    assert re.fullmatch(once, told["bluebridge_faults"])
    assert re.match(r"a: QUERY_FW.*: BAD_RESOURCE \(event \d+, ", told["bluebridge_failed_request"])
    assert told["bluebridge_faults"] in said and told["bluebridge_failed_request"] in said
    for name in ("a", "b"):
        dmesg = (kept["test_mine-test_bad"] / f"dmesg-{name}.txt").read_text()
        assert re.search(rf"(?m)^\[.*\] a word of guest {name}$", dmesg)
        assert "Linux version" in dmesg, "from the beginning, of all levels"
        assert f"a word of guest {name}\n" in said
    dead = (kept["test_mine-test_panic"] / "dmesg-b.txt").read_text()
    assert "Kernel panic" in dead and "guest b was not asked for its messages" in dead
    for name, place in (("test_bad", "test_mine-test_bad"), ("test_second", "test_shared")):
        page = Path(project.properties(name)["bluebridge_page"])
        assert page.parent == kept[place] and "begins" in page.read_text()


HANGING = """
from pathlib import Path

def test_hanging(pair):
    pids = [pair.server.pid, pair.a.pid, pair.b.pid]
    Path("pids.new").write_text(" ".join(map(str, pids)))
    Path("pids.new").rename("pids")
    pair.a.run("sleep 10000", timeout=None)
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 2),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
        (signal.SIGKILL, -9),
    ],
)
def test_a_signal_ends_everything(project: Project, number: signal.Signals, status: int) -> None:
    """The folder of the test that was interrupted stays."""
    project.write("test_mine.py", HANGING)
    running = project.start()
    pids = _wait_for_pids(project, running)
    running.send_signal(number)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == status, said
    _assert_gone(pids)
    assert set(project.kept()) == {"test_mine-test_hanging"}


@pytest.mark.parametrize("method", [pytest.param("signal", marks=pytest.mark.long), "thread"])
def test_a_time_limit_ends_everything(project: Project, method: str) -> None:
    """With the thread method pytest-timeout leaves the process at once."""
    limited = "import pytest\npytestmark = pytest.mark.timeout(1, func_only=True)\n"
    project.write("test_mine.py", limited + HANGING)
    running = project.start(f"--timeout-method={method}")
    pids = _wait_for_pids(project, running)
    said, _ = running.communicate(timeout=BOOT_SECONDS)
    assert running.returncode == 1 and "Timeout" in said
    _assert_gone(pids)


def _wait_for_pids(project: Project, running: subprocess.Popen[str]) -> list[int]:
    deadline = time.monotonic() + BOOT_SECONDS
    while not (project.folder / "pids").exists():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [int(pid) for pid in (project.folder / "pids").read_text().split()]


def _assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.brief
def test_the_example_of_the_readme(project: Project) -> None:
    """Twelve lines, and they work as they stand there."""
    (example,) = re.findall(r"```python\n(import pytest\n.*?)```", _readme(), re.DOTALL)
    assert len(example.splitlines()) == 12
    project.write("test_example.py", example)
    said = project.run()
    assert set(project.outcomes().values()) == {"passed"}, said
    assert not project.kept()


def _readme() -> str:
    return (ROOT / "README.md").read_text()
