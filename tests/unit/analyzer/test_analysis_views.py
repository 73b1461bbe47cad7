"""The analyzer's views, their files and their errors, by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.record import META_NAME
from bluebridge.device.layout.events import Fact
from tests.models.analysis_log import Sender, nine_posts
from tests.unit.analyzer.conftest import Run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return nine_posts(tmp_path / "log")


def test_the_view_of_work_requests(log: Path, run: Run) -> None:
    status, out, _ = run(log, "--view", "wr")
    rows = [line for line in out.splitlines() if " 0x48 " in line]
    assert (status, len(rows)) == (0, 9)
    assert "8 BlueFlame" in rows[3]
    assert "|        1/64            -            -         1/32" in rows[3]
    assert "modelled" not in out
    assert "a   RDMA_WRITE    fallback           3" in out


def test_modelled_time_has_its_own_columns(log: Path, run: Run) -> None:
    _, plain, _ = run(log, "--view", "wr", "--tree")
    _, both, _ = run(log, "--view", "wr", "--tree", "--profile", "system-x")
    assert "modelled us" not in plain
    assert both.count("modelled us") > 9
    _, out, _ = run(log, "--view", "traffic", "--profile", "system-x")
    assert "modelled avg us" in out.splitlines()[0]


def test_the_view_of_traffic_leads_to_events(log: Path, run: Run) -> None:
    _, out, _ = run(log, "--view", "traffic")
    (row,) = [line for line in out.splitlines() if line.startswith("a   interrupt")]
    assert row.split()[1:5] == ["interrupt", "EQE", "3", "12"]
    number = row.split("#")[1]
    _, table, _ = run(log, "--view", "table", "--event", number, "--limit", 1)
    assert table.splitlines()[1].endswith("interrupt, vector 1")


def _rows(run: Run, *words: object) -> list[dict[str, Any]]:
    """Return what a view prints as JSON lines."""
    status, out, _ = run(*words, "--json")
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


def test_views_as_json(log: Path, run: Run) -> None:
    """The same facts as in the tables, a JSON object a line; --format jsonl is the same."""
    requests = _rows(run, log, "--view", "wr", "--profile", "system-x", "--tree")
    assert [row["bytes"] for row in requests] == [8, 100, 200] * 3
    assert {row["by"] for row in requests} == {"doorbell", "BlueFlame", "fallback"}
    assert all(row["modelled_us"] > 0 for row in requests)
    assert requests[0]["transactions"][1]["parent"] == 0
    table = _rows(run, log, "--view", "table")
    assert {"type", "role", "upstream", "length", "data"} <= table[0].keys()
    traffic = _rows(run, log, "--view", "traffic")
    (interrupts,) = [row for row in traffic if row["kind"] == "interrupt"]
    assert (interrupts["device"], interrupts["after"], interrupts["count"]) == ("a", "EQE", 3)
    assert interrupts["wall_us"]["max"] >= interrupts["wall_us"]["min"]
    found = _rows(run, log, "--view", "all")
    assert sum(row["events"] for row in found) == len(_rows(run, log))
    assert [row["wr"] for row in found] == list(range(9))
    _, lines, _ = run(log, "--view", "all", "--format", "jsonl")
    assert list(map(json.loads, lines.splitlines())) == found


def test_the_view_of_all(log: Path, run: Run) -> None:
    """In order of beginning, with --tree each transaction below its cause."""
    status, out, _ = run(log, "--view", "all")
    numbers = [int(line.split()[0]) for line in out.splitlines()[1:]]
    assert (status, len(numbers)) == (0, 9)
    assert numbers == sorted(numbers)
    _, tree, _ = run(log, "--view", "all", "--tree", "--limit", 2)
    depths = [len(line) - len(line[35:].lstrip()) for line in tree.splitlines()[2:]]
    assert len(set(depths)) > 3
    assert "write interrupt, vector 1, 4 bytes" in tree


def test_filters_of_the_views(log: Path, run: Run) -> None:
    _, everything, _ = run(log, "--view", "table")
    _, some, _ = run(log, "--view", "table", "--device", "b")
    assert 0 < len(some.splitlines()) < len(everything.splitlines())
    assert run(log, "--view", "wr", "--device", "b")[1].count("0x48") == 0
    assert len(run(log, "--view", "table", "--limit", 5)[1].splitlines()) == 6


def test_a_tree_without_a_view_is_that_of_the_table(log: Path, run: Run) -> None:
    table = run(log, "--view", "table", "--tree", "--limit", 9)
    assert run(log, "--tree", "--decode", "--limit", 9) == table
    assert table[0] == 0 and "RADDR.va" in table[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--view", "wr", "--profile", "nonsense"], "nonsense"),
        (["--view", "traffic", "--tree"], "--tree needs --view table or wr"),
        (["--view", "wr", "--kind", "dma"], "--kind chooses events"),
        (["--perfetto", "x", "--pcap", "y"], "one file at a time"),
        (["--perfetto", "x", "--bar", "2"], "--bar chooses what is printed"),
        (["--perfetto", "taken"], "taken exists: name another file or add --force"),
        (["--perfetto", "/nowhere/x"], "name a file that can be written"),
        (["--perfetto", "none", "--from", "1e6"], "no event that passes"),
    ],
)
def test_bad_input_is_one_line(
    log: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.chdir(log.parent)
    Path("taken").write_text("mine")
    run(log, *words).refused(why)
    assert sorted(path.name for path in log.parent.iterdir()) == ["log", "taken"]
    assert Path("taken").read_text() == "mine"


def test_a_log_of_another_version(log: Path, run: Run) -> None:
    meta = json.loads((log / META_NAME).read_text())
    (log / META_NAME).write_text(json.dumps(meta | {"version": 2}))
    run(log, "--view", "wr").refused("version 2")


@pytest.mark.parametrize("view", ["events", "table", "wr", "traffic"])
def test_what_is_readable_of_a_cut_log_is_shown(log: Path, run: Run, view: str) -> None:
    whole = run(log, "--view", view)[1]
    segment = next(log.glob("events-*.bin"))
    segment.write_bytes(segment.read_bytes()[:-7])
    status, out, err = run(log, "--view", view)
    assert status == 1
    assert err == (
        "the log's last event is cut short: its writer was killed; all before it is shown\n"
    )
    assert len(out.splitlines()) >= len(whole.splitlines()) - 2


def test_an_event_is_found_without_reading_all_before(tmp_path: Path, run: Run) -> None:
    """Event numbers count from the beginning of the log, also of events that were deleted."""
    sender = Sender(tmp_path, total=1 << 20, segment=1 << 18)
    for _ in range(3000):
        sender.post()
    sender.log.close()
    status, out, err = run(tmp_path, "--view", "table", "--event", 17004, "--limit", 1)
    assert status == 0 and err.startswith("the oldest ") and err.count("\n") == 1
    assert out.splitlines()[1].split()[0] == "17004"
    first = sorted(tmp_path.glob("events-*.bin"))[0]
    first.write_bytes(b"\xee" * 900)  # earlier segments are not read
    assert run(tmp_path, "--view", "table", "--event", 17004, "--limit", 1)[1] == out


def test_what_failed_and_what_is_no_polling(tmp_path: Path, run: Run) -> None:
    """A driver's look at its counters hides what somebody looks for, unless the look failed."""
    sender = Sender(tmp_path / "log")
    for name in ("DUMP_ETH_STATS", "INIT_PORT"):
        sender.command(name)
    sender.command("DUMP_ETH_STATS", "BAD_PARAM", reason="no port")
    sender.tell(Fact.RULE, rule=1, verb="drops", direction="out", message="frames")
    sender.log.close()
    words = tmp_path / "log", "--kind", "command,fault", "--no-polling"
    for view in (words, (tmp_path / "log", "--view", "all", "--no-polling")):
        _, out, _ = run(*view)
        assert (
            "INIT_PORT" in out
            and "BAD_PARAM" in out
            and "DUMP_ETH_STATS op_mod=0 in_mod=0x1 in=0x0 OK" not in out
        )
    _, out, _ = run(*words, "--failed")
    assert [line.split()[3] for line in out.splitlines()[1:]] == ["command", "fault"]
    _, out, _ = run(tmp_path / "log", "--view", "all", "--failed")
    assert ["BAD_PARAM" in line for line in out.splitlines()[1:]] == [True, False]
    run(tmp_path / "log", "--view", "table", "--failed").refused("--failed needs --view")
    run(tmp_path / "log", "--pcap", "-", "--no-polling").refused("--no-polling chooses events")
