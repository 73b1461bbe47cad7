"""`bluebridge log --diff A B`: two runs, times and addresses aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.host_tools import cli

HCR = bar0.HCR_BASE


class Run:
    """One run's log: guest memory from `memory` on, PSNs from `psn` on."""

    def __init__(self, folder: Path, memory: int, microseconds: int) -> None:
        self.log = FileLog(folder)
        self.devices = {name: self.log.device(name) for name in "ab"}
        self.memory = memory
        self.microseconds = microseconds

    def command(self, device: str, name: str, page: int) -> None:
        """A firmware command whose parameter is an address."""
        address = self.memory + page * 4096
        number = self.devices[device]
        self.log.record(number, Kind.MMIO_WRITE, 0, HCR + 4, 4, address.to_bytes(4, "big"))
        self.log.tell(
            number, Fact.COMMAND, name=name, in_param=address, status="OK", us=self.microseconds
        )

    def poll(self, times: int) -> None:
        """Software reads a register until it changes."""
        for _ in range(times):
            self.log.record(0, Kind.MMIO_READ, 0, HCR + 0x18, 4, bytes((0, 0x80, 0, 1)))

    def ring(self, device: str, qpn: int) -> None:
        """A doorbell."""
        data = uar.send_doorbell(qpn).to_bytes(4, "big")
        self.log.record(self.devices[device], Kind.MMIO_WRITE, 2, 0x80014, 4, data)

    def payload(self, size: int) -> None:
        """The device reads a payload."""
        self.log.record(0, Kind.DMA_READ, 0, self.memory, size, bytes(8), What.PAYLOAD, 0x41)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    return Run(tmp_path / "x", 0xCEEB000, 40), Run(tmp_path / "y", 0x3FC8_4000, 7)


def differ(tmp_path: Path, *runs: Run) -> int:
    for run in runs:
        run.log.close()
    return cli.main(["log", "--diff", str(tmp_path / "x"), str(tmp_path / "y")])


def test_runs_that_differ_in_addresses_times_and_polls_are_alike(
    tmp_path: Path, runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """So are those in which the functions' events come in another order."""
    for times, run in zip((3, 9), runs, strict=True):
        run.command("a", "MAP_ICM", 0)
        run.poll(times)
        run.command("a", "MAP_ICM", 1)
        run.payload(64)
    for run, names in zip(runs, ("aabb", "baba"), strict=True):
        qpn = dict.fromkeys("ab", 0x40)
        for name in names:
            qpn[name] += 1
            run.ring(name, qpn[name])
    assert differ(tmp_path, *runs) == 0
    assert capsys.readouterr().out == "alike: 10 lines of 4 kinds and functions\n"


def test_the_first_difference_is_shown_with_what_was_around_it(
    tmp_path: Path, runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    for run, last in zip(runs, (0x48, 0x49), strict=True):
        for qpn in (0x41, 0x42, 0x43, 0x44, 0x45, last, 0x50):
            run.ring("a", qpn)
        run.payload(last)
        run.ring("b", 0x60)
    assert differ(tmp_path, *runs) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the first difference: a mmio: 5 lines alike, then event 5 and event 5"
    marked = [line for line in lines if line.startswith("> ")]
    assert ["qpn=0x48" in marked[0], "qpn=0x49" in marked[1], len(marked)] == [True, True, 2]
    assert sum("qpn=0x42" in line for line in lines) == 2 and "qpn=0x41" not in "".join(lines)
    assert "  a dma read payload: 0 lines alike, then event 7 and event 7" in lines
    assert lines[-1] == "1 of 3 kinds and functions are alike"


def test_the_same_address_twice_is_not_the_same_as_two(
    tmp_path: Path, runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    for run, page in zip(runs, (1, 0), strict=True):
        run.command("a", "MAP_ICM", 0)
        run.command("a", "MAP_ICM", page)
    assert differ(tmp_path, *runs) == 1
    assert "a mmio: 1 lines alike, then event 2 and event 2" in capsys.readouterr().out


def test_a_run_that_ends_sooner(
    tmp_path: Path, runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    for run in runs:
        run.ring("a", 0x41)
    runs[1].ring("a", 0x42)
    assert differ(tmp_path, *runs) == 1
    out = capsys.readouterr().out
    assert "1 lines alike, then no more and event 1" in out and ">   (no more)" in out


def test_trouble_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["log", "--diff", str(tmp_path / "x"), str(tmp_path / "y")]) == 2
    error = capsys.readouterr().err
    assert "holds no bus log" in error and error.count("\n") == 1


def test_logs_that_end_differ_first_where_the_shorter_one_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In both orders, however early the shorter one had its last event of another kind."""
    for name, rounds in (("x", 6), ("y", 3)):
        run = Run(tmp_path / name, 0x1000_0000, 5)
        run.poll(1)
        for number in range(rounds):
            run.ring("a", 0x41 + number)
        if name == "x":
            run.payload(64)
            run.ring("b", 0x51)
            run.poll(1)
            run.command("b", "QUERY_FW", 1)
        run.log.close()
    for pair in ("xy", "yx"):
        assert cli.main(["log", "--diff", *(str(tmp_path / name) for name in pair)]) == 1
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith("the first difference: a mmio: 4 lines alike, then ")
        assert "event 4" in first and "no more" in first


def test_an_event_behind_the_end_of_a_log_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "x", 0, 1)
    for number in range(5):
        run.ring("a", number)
    run.log.close()
    log, page = str(tmp_path / "x"), str(tmp_path / "page")
    for words in (["log", log], ["log", log, "--view", "all"], ["web", log, "--save", page]):
        for late in ("5", "99999999999"):
            assert cli.main([*words, "--event", late]) != 0
            error = capsys.readouterr().err
            assert f"the log has no event {late}: its last event is 4" in error
            assert error.count("\n") == 1
        assert cli.main([*words, "--event", "4"]) == 0
        capsys.readouterr()
    assert cli.main(["log", log, "--event", "99999999999", "--pcap", page]) != 0
    assert "no event 99999999999" in capsys.readouterr().err
