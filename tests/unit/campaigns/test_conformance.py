"""The conformance run's verdicts, its journal and its page; no guest is needed for any of them."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.cards import CARDS
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.programs.running import Ended
from tests.campaigns.conformance import results
from tests.campaigns.conformance.__main__ import main
from tests.campaigns.conformance.program import (
    FAILED,
    PASSED,
    SKIPPED,
    Program,
    Verdict,
    every_second_has_bytes,
    verdict,
)
from tests.campaigns.conformance.results import Entry, Journal, lacking
from tests.campaigns.conformance.session import QUICK, RXE, SETUPS, Words
from tests.campaigns.conformance.suites import everything, key
from tests.campaigns.conformance.suites.selftests import each_case, excused
from tests.campaigns.conformance.suites.verbs import GENERIC, each_test

PROGRAM = Program("suite", "name", "true", expect="^done$", unsupported="no XRC", limit=7)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VERDICTS = st.builds(Verdict, st.sampled_from([PASSED, FAILED, SKIPPED]), TEXT, TEXT)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["roce", "infiniband"]),
    TEXT,
    TEXT,
    st.floats(0, 1e6),
    st.lists(VERDICTS, min_size=1, max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (Ended(0, "first\ndone\n"), Verdict(PASSED)),
        (Ended(0, "first\n----\n"), Verdict(FAILED, "printed no /^done$/: first")),
        (Ended(3, "done\nbad QP\n"), Verdict(FAILED, "status 3: bad QP")),
        (Ended(None, ""), Verdict(FAILED, "no end after 7 s: no output")),
        (Ended(1, "a\nhere is no XRC\nb"), Verdict(SKIPPED, "here is no XRC")),
    ],
)
def test_the_end_of_a_client_has_a_verdict(ended: Ended, expected: Verdict) -> None:
    assert list(verdict(PROGRAM, ended)) == [expected]


def _report(*moved: int, **more: object) -> Ended:
    intervals = [{"sum": {"bytes": count, "seconds": 1.0}} for count in moved]
    intervals.append({"sum": {"bytes": 0, "seconds": 0.02}})
    end = {"sum_received": {"bits_per_second": 8e6}}
    return Ended(0, json.dumps({"intervals": intervals, "end": end, **more}))


def test_tcp_must_move_something_every_second() -> None:
    (good,) = every_second_has_bytes(_report(1_000_000, 250_000))
    assert good == Verdict(PASSED, "8 Mbit/s, slowest second 2 Mbit")
    (stalled,) = every_second_has_bytes(_report(5, 0, 5))
    assert stalled == Verdict(FAILED, "nothing moved in interval 1 of 3")
    (refused,) = every_second_has_bytes(_report(error="unable to connect"))
    assert refused == Verdict(FAILED, "unable to connect")
    (silent,) = every_second_has_bytes(Ended(1, "[]"))
    assert silent.status == FAILED


def _tests(count: int) -> str:
    lines = [{"test": f"tests.t.T.n{n}", "status": PASSED, "reason": ""} for n in range(count)]
    return "\n".join(["noise", "3", *map(json.dumps, lines)])


def test_each_of_rdma_cores_tests_counts_and_none_may_get_lost() -> None:
    found = each_test(Ended(0, _tests(GENERIC)))
    assert len(found) == GENERIC and found[0] == Verdict(PASSED, "", "t.T.n0")
    *_, lost = each_test(Ended(0, _tests(GENERIC - 1)))
    assert lost.status == FAILED and f"{GENERIC - 1} of {GENERIC}" in lost.reason
    *_, late = each_test(Ended(None, _tests(GENERIC)))
    assert late.status == FAILED and "no end in time" in late.reason


def test_a_test_that_fails_for_what_the_device_lacks_is_skipped() -> None:
    line = {"test": "tests.t.T.meter", "status": FAILED, "reason": "Error: Reg C is not supported)"}
    (found,) = each_test(Ended(0, json.dumps(line)), 1, unsupported="Reg C is not supported")
    assert found == Verdict(SKIPPED, line["reason"], "t.T.meter") and lacking(found.reason)
    (failed,) = each_test(Ended(0, json.dumps(line)), 1, unsupported="Reg D")
    assert failed.status == FAILED


_KTAP = """\
KTAP version 1
1..4
ok 1 stats.check_pause
# Check| At /opt/linux/stats.py, line 7, in check_fec:
# Check failed 1 != 2
not ok 2 stats.check_fec
ok 3 stats.check_down # SKIP qstats not supported by the device
ok 4 stats.other # XFAIL FEC not supported by the device
"""


def test_each_case_of_a_selftest_counts() -> None:
    found = each_case(Ended(1, _KTAP))
    assert found == [
        Verdict(PASSED, "", "stats.check_pause"),
        Verdict(FAILED, "Check failed 1 != 2", "stats.check_fec"),
        Verdict(SKIPPED, "qstats not supported by the device", "stats.check_down"),
        Verdict(SKIPPED, "FEC not supported by the device", "stats.other"),
    ]
    assert each_case(Ended(None, _KTAP))[-1] == Verdict(FAILED, "no end in time", "run")
    assert excused(found[1], {"stats.check_fec": "the driver"}) == Verdict(
        SKIPPED, "the driver", "stats.check_fec"
    )
    assert [excused(each, {"stats.check_pause": "the driver"}) for each in found] == found
    (absent,) = each_case(Ended(4, "Test not started, no port reports max_lanes\n"))
    assert absent == Verdict(SKIPPED, "Test not started, no port reports max_lanes")
    (broken,) = each_case(Ended(1, "ImportError: no yaml\n"))
    assert broken == Verdict(FAILED, "ImportError: no yaml")


def test_placeholders_are_replaced_and_other_braces_stay() -> None:
    line = "{ ping {server6}%{netdev} {g}; } || x {x} {client} ${HOME}"
    filled = Words("eth0", "fe80::1", {"a": 3}).fill(line, "a")
    assert filled == "{ ping fe80::1%eth0 -g 3; } || x -x 3 10.9.0.2 ${HOME}"
    assert Words("ib0", "", {}).fill("a{g}{x}", "a") == "a"


@given(st.lists(ENTRIES, max_size=5))
def test_a_journal_comes_back(entries: list[Entry]) -> None:
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name))
        for entry in entries:
            journal.add(entry)
        again = Journal(Path(name))
        assert again.entries == {entry.key: entry for entry in entries}
        last = {entry.key: entry for entry in entries}.values()
        assert all(again.passed(entry.key) is not entry.failed for entry in last)


@pytest.mark.parametrize("line", ["{", "[]", '{"setup": "roce"}', '{"verdicts": 3}'])
def test_what_is_no_journal_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "results.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match=r"line 1: no result of a run"):
        Journal(tmp_path)


def test_the_page_hides_no_failure_and_no_skip() -> None:
    verdicts = (
        *(Verdict(PASSED, "16 each way", "a"), Verdict(FAILED, "lost", "b")),
        Verdict(SKIPPED, "ODP is not there"),
    )
    entries = [
        Entry("roce", "tests", "t", 1.0, verdicts),
        Entry("infiniband", "tests", "t", 1.0, verdicts[:1]),
    ]
    text = results.page("# Head\n\nWords.\n\n| old |\nAll this goes.\n", SETUPS[:2], entries)
    assert text.startswith("# Head\n\nWords.\n\n| setup | what it is |") and "goes" not in text
    assert "| tests | 1 / 1 / 1 | 1 / 0 / 0 |" in text
    assert "## Failed\n- `roce/tests/t: b`: lost\n" in text
    assert "- ODP is not there *(mlx4_ib pins memory)*\n  - `tests/t` (roce)" in text
    assert "- `tests/t`\n  - roce: a: 16 each way\n  - infiniband: a: 16 each way\n" in text
    assert "| tests: `t` | failed | passed |" in text
    assert "failed" in results.table(entries)


def test_programs_have_names_of_their_own_and_placeholders_that_exist() -> None:
    choices = [choice for card in CARDS for choice in everything(card)]
    keys = [key(choice) for choice in choices]
    assert len(keys) == len(set(keys))
    words = Words("eth0", "fe80::1", {"b": 1})
    for _, program in choices:
        for text in (program.client, program.server, program.ready, program.after):
            filled = words.fill(text, "b")
            left = [word for word in ("{server", "{client", "{g}", "{x}") if word in filled]
            assert not left, filled
        assert bool(program.server) == bool(program.ready), program.key


def test_programs_about_mlx4_do_not_run_on_a_connectx5() -> None:
    """All others of RoCE do, and those about mlx5's drivers besides."""
    found = {setup.name: set[str]() for setup, _ in everything("connectx5")}
    for setup, program in everything("connectx5"):
        assert "mlx4" not in f"{program.client} {program.server}", program.key
        found[setup.name].add(program.key)
    assert "drivers/unload and load mlx5 20 times" in found["connectx5-roce"]
    roce = {program.key for setup, program in everything() if setup.name == "roce"}
    kinds = ("drivers", "firmware", "network")
    assert {key for key in roce if not key.startswith(kinds)} <= found["connectx5-roce"]
    for name in ("connectx5-a", "connectx5-b", "connectx5-rxe-a", "connectx5-rxe-b"):
        assert any(key.startswith("storage/nvme-rdma") for key in found[name])


def test_the_short_run_has_something_of_each_suite() -> None:
    quick = [program for setup, program in everything() if program.short and setup in QUICK]
    # Drivers' comings and goings, firmware, a subnet's tools, rules of steering are in tests/vm;
    # DPDK and the kernel's selftests are fetched for the long run only.
    left_out = {"dpdk", "drivers", "firmware", "management", "soft-roce", "steering"}
    left_out |= {"selftests", "settings"}
    assert {program.suite for program in quick} == {
        program.suite for _, program in everything()
    } - left_out


def test_results_become_a_table_and_those_of_a_whole_page_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Words.\n")
    monkeypatch.setattr(results, "PAGES", {page: RXE, tmp_path / "other.md": SETUPS})
    journal = Journal(tmp_path)
    for setup, program in everything():
        if setup in RXE:
            verdicts = (Verdict(PASSED),)
            journal.add(Entry(setup.name, program.suite, program.name, 1.0, verdicts))
    assert main(tmp_path) == 0
    assert f"{len(journal.entries)} of " in capsys.readouterr().out
    assert "| soft-roce: `" in page.read_text() and not (tmp_path / "other.md").exists()
    (first, *_) = journal.entries.values()
    journal.add(replace(first, verdicts=(Verdict(FAILED, "no luck"),)))
    assert main(tmp_path) == 1
    assert f"`{first.key}`: no luck" in page.read_text()


def test_every_skip_of_the_page_says_what_the_card_lacks() -> None:
    with_skips = 0
    for page in results.PAGES:
        text = page.read_text().partition("## Skipped")[2].partition("\n## ")[0]
        reasons = re.findall(r"^- (.*?)(?: \*\((.*)\)\*)?$", text, re.MULTILINE)
        with_skips += bool(reasons)
        assert all(lacking(reason) == why != "" for reason, why in reasons), page
    assert with_skips >= 2
    assert lacking("the moon is full") == ""
