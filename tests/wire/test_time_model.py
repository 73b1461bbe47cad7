"""The study's tables from real logs of the guest's driver, and their dependence on the counts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.verbs import WrOpcode
from bluebridge.host_tools.analyzer.analysis import PostedBy, transfers
from bluebridge.host_tools.analyzer.model import load
from bluebridge.host_tools.analyzer.model.model import Constants, link_share
from bluebridge.host_tools.study import model_command as cli
from bluebridge.host_tools.study.tables import (
    TABLES,
    Setting,
    StudyTable,
    compare,
    mean_of,
    read_samples,
)
from tests.models.server import ROOT
from tests.wire.sweeps import STUDY, rewritten, sweep

TOLERANCE = 0.1


@dataclass(frozen=True)
class Logs:
    """Sweeps over the study's sizes: doorbells, BlueFlame by both size rules, the wrong page."""

    doorbell: Path
    blueflame: Path
    old: Path
    wrong: Path


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """The sweeps, run once."""
    folder = tmp_path_factory.mktemp("sweeps")
    return Logs(
        sweep(folder / "doorbell", STUDY, None),
        sweep(folder / "blueflame", STUDY, BlueFlameUse()),
        sweep(folder / "old", STUDY, BlueFlameUse(old_size_rule=True)),
        sweep(folder / "wrong", STUDY, BlueFlameUse(wrong_page=True)),
    )


def check(table: StudyTable, logs: Iterable[Path]) -> None:
    """Each time, and the effect of BlueFlame on it, is within a tenth of the study's."""
    model = load(table.profile)
    rows = compare(table, [read_samples(log, model) for log in logs])
    assert [each.row for each in rows] == list(table.rows)
    for each in rows:
        assert each.doorbell == pytest.approx(each.row.doorbell, rel=TOLERANCE)
        assert each.blueflame == pytest.approx(each.row.blueflame, rel=TOLERANCE)
        assert each.gain == pytest.approx(each.row.gain, rel=TOLERANCE, abs=0.001)
        assert each.more == pytest.approx(each.row.more, rel=TOLERANCE, abs=0.001)


def test_table_31(logs: Logs) -> None:
    check(TABLES["3.1"], [logs.doorbell, logs.old])


def test_table_41(logs: Logs) -> None:
    check(TABLES["4.1"], [logs.doorbell, logs.blueflame])


def test_figure_43(logs: Logs) -> None:
    check(TABLES["4.3"], [logs.doorbell, logs.wrong])


def test_the_command_prints_the_tables(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row of the study, the modelled times in separate columns; docs/blueflame.md has them."""
    page = (ROOT / "docs/blueflame.md").read_text(encoding="utf-8")
    for name, with_it in (("3.1", logs.old), ("4.1", logs.blueflame), ("4.3", logs.wrong)):
        words = ["--table", name, str(logs.doorbell), str(with_it)]
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        assert cli.main(parser.parse_args(words)) == 0
        printed = capsys.readouterr().out.splitlines()
        title, head, *lines = printed
        shown = len(TABLES[name].rows) + 2
        assert "".join(f"    {line}\n" for line in printed[:shown]) in page
        assert title.endswith(f"profile {TABLES[name].profile}")
        assert head.count("modelled") == 3
        for row, line in zip(TABLES[name].rows, lines, strict=False):
            assert line.split()[0] == f"{row.low}-{row.high}"
            assert f"{row.doorbell:.2f}" in line and f"{row.blueflame:.2f}" in line
        assert "figure 4.5 (System z) shows 0.67 us and 0.63 us" in lines[-1]


def test_the_old_size_rule_moves_the_edge(logs: Logs) -> None:
    """Section 3.3: 208 bytes instead of 192."""
    assert _largest(logs.old) == 184
    assert _largest(logs.blueflame) == 204


def _largest(log: Path) -> int:
    return max(each.length for each in transfers(log) if each.posted_by is PostedBy.BLUEFLAME)


def test_other_operations_are_not_the_studys(logs: Logs, tmp_path: Path) -> None:
    """A log of perftest has frames of its TCP connection, sent through BlueFlame, too."""
    sends = sweep(tmp_path / "send", (4, 14), BlueFlameUse(), WrOpcode.SEND)
    model = load("system-z")
    samples = read_samples(sends, model)
    assert samples.setting is Setting.DOORBELL
    assert {key[:2] for key in samples.groups} == {("SEND", 4), ("SEND", 14)}
    with pytest.raises(ValueError, match="no RDMA WRITE of 1 to 28 bytes with BlueFlame"):
        compare(TABLES["4.1"], [read_samples(logs.doorbell, model), samples])


def test_processor_time(logs: Logs) -> None:
    """BlueFlame costs the sender's processor more, on both machines; the study leaves it open."""
    for table, with_it in ((TABLES["3.1"], logs.old), (TABLES["4.1"], logs.blueflame)):
        model = load(table.profile)
        first = compare(table, [read_samples(log, model) for log in (logs.doorbell, with_it)])[0]
        assert first.blueflame_cpu > 4 * first.doorbell_cpu > 0


def latency(log: Path, size: int) -> float:
    """Modelled microseconds of one size on System z."""
    samples = read_samples(log, load("system-z"))
    found = mean_of([samples], samples.setting, "latency", size, size)
    assert found is not None
    return found


def fetched_twice(event: Event) -> list[Event]:
    """Entries are read two times."""
    again = event.kind == Kind.DMA_READ and event.what == What.SQ_WQE
    return [event, event] if again else [event]


def payload_unread(event: Event) -> list[Event]:
    """No payload is read."""
    return [] if event.kind == Kind.DMA_READ and event.what == What.PAYLOAD else [event]


def payload_twice(event: Event) -> list[Event]:
    """The peer's adapter writes the data two times."""
    again = event.kind == Kind.DMA_WRITE and event.what == What.PAYLOAD
    return [event, event] if again else [event]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (fetched_twice, lambda us: us.turn + 2 * us.read),
        (payload_twice, lambda us: us.write * link_share(1024)),
        (payload_unread, lambda us: -us.read),
    ],
)
def test_one_count_more_or_less_in_the_log_changes_the_time(
    logs: Logs,
    tmp_path: Path,
    change: Callable[[Event], list[Event]],
    difference: Callable[[Constants], float],
) -> None:
    before = latency(logs.doorbell, 1024)
    after = latency(rewritten(logs.doorbell, tmp_path / "log", change), 1024)
    assert after - before == pytest.approx(difference(load("system-z").profile.us))


def test_a_line_less_in_the_log_changes_the_time(logs: Logs, tmp_path: Path) -> None:
    """84 bytes are two lines, one store block: without the second a write is saved."""
    us = load("system-z").profile.us
    dropped = [
        event_number
        for each in transfers(logs.blueflame)
        if each.length == 84
        for line in each.transactions[1:2]
        for event_number in range(line.number, line.last + 1)
    ]
    assert len(dropped) == 8

    def change(event: Event) -> list[Event]:
        return [] if event.number in dropped else [event]

    before = latency(logs.blueflame, 84)
    after = latency(rewritten(logs.blueflame, tmp_path / "log", change), 84)
    assert before - after == pytest.approx(us.write)


def test_sends_wait_for_the_completion_of_the_peer(tmp_path: Path) -> None:
    """The receiver of a SEND polls its completion queue."""
    log = sweep(tmp_path / "send", (4, 64), BlueFlameUse(), WrOpcode.SEND)
    us = load("system-z").profile.us
    sent = [
        each for each in transfers(log) if each.posted_by is PostedBy.BLUEFLAME and each.length == 4
    ]
    (time,) = [load("system-z").latency(each) for each in sent]
    expected = us.base + us.store + us.write + us.write * link_share(4) + us.completion
    assert time == pytest.approx(expected)
