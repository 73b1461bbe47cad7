"""Conditions on events, and `bluebridge watch --until`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.wire import ROUTE
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import cqe, uar
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError, LiveSearch
from bluebridge.host_tools.analyzer.decode import decode

RING = 0x80014


def answer(log: FileLog, device: int, syndrome: int) -> None:
    """A response leaves a port."""
    before = bytes(ROUTE.size)
    log.message(device, What.RESPONSE, 0x41, 0, 0, 0, 0, syndrome, 0x42, 7, 1, 0, 0, before, b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = FileLog(tmp_path / "bus")
    a, b = log.device("a"), log.device("b.1")
    log.record(a, Kind.MMIO_WRITE, 2, RING, 4, uar.send_doorbell(0x49).to_bytes(4, "big"))
    log.record(b, Kind.COMMAND, 0, 0, 0, b"INIT_PORT op_mod=0 in_mod=0x1 in=0x0 OK 40 us")
    log.record(
        b, Kind.COMMAND, 0, 0, 0, b"RST2INIT_QP op_mod=0 in_mod=0x49 in=0x0 BAD_PARAM 9 us: x"
    )
    answer(log, a, Syndrome.ACK)
    answer(log, a, Syndrome.NAK_REMOTE_ACCESS)
    error = cqe.ERROR_CQE.pack(syndrome=cqe.CompletionStatus.WR_FLUSH_ERR)
    entry = bytearray(error.ljust(cqe.CQE_SIZE, b"\0"))
    entry[-1] = cqe.OPCODE_ERROR
    log.record(b, Kind.DMA_WRITE, 0, 0x1000, 32, bytes(entry), What.CQE, 0x80)
    log.record(b, Kind.IRQ, 0, 3, 0, b"")
    log.close()
    return tmp_path


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        ("NAK", [4]),
        ("/NAK|OK/", [1, 4]),
        ("'NAK|OK'", []),
        ("kind=irq", [6]),
        ("kind=command and device=b.1 and status!=OK", [2]),
        ("status!=OK", [2, 5]),
        ("status=bad_param", [2]),
        ("syndrome!=0", [4, 5]),
        ("syndrome = 0x62", [4]),
        ("syndrome=NAK_REMOTE_ACCESS", [4]),
        ("syndrome=0", [3]),
        ("syndrome>0x60", [4]),
        ("qpn=0x49", [0]),
        ("qpn=73", [0]),
        ("in_mod>=1", [1, 2]),
        ("guest=b and kind!=command", [5, 6]),
        ("bar=2 and UAR", [0]),
        ("vector=3", [6]),
        ("MSI-X", [6]),
        ("what=cqe", [5]),
        ("kind=mmio and /BAR2.*send/", [0]),
        ("device=c", []),
        ("nothing_of_this_name=3", []),
        ("nothing_of_this_name!=3", []),
    ],
)
def test_which_events_match(folder: Path, expression: str, numbers: list[int]) -> None:
    condition = Condition.parse(expression)
    reader = LogReader(folder)
    assert [event.number for event in reader if condition.matches(event, decode)] == numbers
    search = LiveSearch(LogReader(folder), condition)
    assert [event.number for event in search.new()] == numbers
    assert list(search.new()) == []


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "missing"),
        ("and", "missing"),
        ("NAK and", "missing"),
        ("a=1 and and b=2", "missing"),
        ("syndrom!=0", "did you mean syndrome"),
        ("kind=interrupt", "kind is one of"),
        ("kind=", "a value is missing"),
        ("status!= and kind=command", "a value is missing"),
        ("what=foo", "what is one of"),
        ("qpn<abc", "abc is no number"),
        ("qpn=0x4[89]", "write /qpn=0x4[89]/"),
        ("(", "no regular expression"),
        ("/[/", "no regular expression"),
    ],
)
def test_a_bad_expression_is_one_line_and_status_2(
    expression: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConditionError):
        Condition.parse(expression)
    assert cli.main(["watch", str(folder), "--until", expression]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_watch_ends_when_the_event_comes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was there before is not looked at; the command it prints shows what led there."""
    log = FileLog(tmp_path / "bus")
    a = log.device("a")
    answer(log, a, Syndrome.NAK_PSN)
    for _ in range(3000):
        answer(log, a, Syndrome.ACK)
    log.flush()
    waiting = threading.Event()

    def write() -> None:
        waiting.wait()
        answer(log, a, Syndrome.NAK_REMOTE_ACCESS)
        log.flush()

    thread = threading.Thread(target=write)
    thread.start()
    assert cli.main(["watch", str(tmp_path), "--until", "NAK", "--for", "0.2"]) == 1
    assert "no event with NAK within 0.2 s" in capsys.readouterr().out
    threading.Timer(0.3, waiting.set).start()
    assert cli.main(["watch", str(tmp_path), "--until", "NAK", "--for", "20"]) == 0
    thread.join()
    log.close()
    lines = capsys.readouterr().out.splitlines()
    assert "NAK_REMOTE_ACCESS" in lines[1] and "event 3001" in lines[2]
    command = lines[3].split()
    assert command[:2] == ["bluebridge", "log"]
    assert cli.main(command[1:]) == 0
    assert "NAK_REMOTE_ACCESS" in capsys.readouterr().out.splitlines()[-1]
