"""Conditions on events, and `bluebridge watch --until`."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.wire import ROUTE
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import cqe, eqe, uar
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer import fields
from bluebridge.host_tools.analyzer.conditions import DIRECT, Condition, ConditionError, LiveSearch
from bluebridge.host_tools.analyzer.decode import decode

RING = 0x80014


def answer(log: FileLog, device: int, syndrome: int) -> None:
    """A response leaves a port."""
    before = bytes(ROUTE.size)
    log.message(device, What.RESPONSE, 0x41, 0, 0, 0, 0, syndrome, 0x42, 7, 1, 0, 0, before, b"")


def completion(log: FileLog, device: int, **values: int) -> None:
    """A completion is written, of which only these fields are not zero."""
    error = "syndrome" in values
    entry = bytes((cqe.ERROR_CQE if error else cqe.CQE).pack(values))
    log.record(device, Kind.DMA_WRITE, 0, 0x1000, 32, entry, What.CQE, 0x80)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = FileLog(tmp_path / "bus")
    a, b = log.device("a"), log.device("b.1")
    log.record(a, Kind.MMIO_WRITE, 2, RING, 4, uar.send_doorbell(0x49).to_bytes(4, "big"))
    log.tell(b, Fact.COMMAND, name="INIT_PORT", in_mod=1, status="OK", us=40)
    log.tell(b, Fact.COMMAND, name="RST2INIT_QP", in_mod=0x49, status="BAD_PARAM", us=9, reason="x")
    answer(log, a, Syndrome.ACK)
    answer(log, a, Syndrome.NAK_REMOTE_ACCESS)
    completion(log, b, syndrome=cqe.CompletionStatus.WR_FLUSH_ERR, opcode=cqe.OPCODE_ERROR)
    log.record(b, Kind.IRQ, 0, 3, 0, b"")
    retried = cqe.CompletionStatus.TRANSPORT_RETRY_EXC_ERR
    completion(log, a, syndrome=retried, vendor_syndrome=0x81, opcode=cqe.OPCODE_ERROR)
    completion(log, a, opcode=SendOpcode.RDMA_WRITE, is_send=1)
    event = bytes(eqe.CMD_EQE.pack(type=eqe.EventType.CMD))
    log.record(a, Kind.DMA_WRITE, 0, 0x2000, 32, event, What.EQE, 1)
    log.close()
    return tmp_path


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        ("NAK", [4]),
        ("/NAK|OK /", [1, 4]),
        ("'NAK|OK'", []),
        ("kind=irq", [6]),
        ("kind=command and device=b.1 and status!=OK", [2]),
        ("status!=OK", [2, 5, 7]),
        ("status=OK", [1, 8]),
        ("status=IBV_WC_SUCCESS", [8]),
        ("status=0", [8]),
        ("status=bad_param", [2]),
        ("status=RETRY_EXC_ERR", [7]),
        ("status=IBV_WC_RETRY_EXC_ERR", [7]),
        ("status=TRANSPORT_RETRY_EXC_ERR", [7]),
        ("syndrome=ibv_wc_retry_exc_err", [7]),
        ("status=0x15 and vendor_err=0x81", [7]),
        ("opcode=RDMA_WRITE", [8]),
        ("opcode=IBV_WR_RDMA_WRITE", [8]),
        ("opcode=write", [8]),
        ("opcode=INIT_PORT", [1]),
        ("syndrome!=0", [4, 5, 7]),
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
        ("what=cqe", [5, 7, 8]),
        ("kind=mmio and /BAR2.*send/", [0]),
        ("device=c", []),
        ("eqn=1", [9]),
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
        ("statsu=OK", "did you mean status? there are address, "),
        ("qpm=0x49", "did you mean qpn? there are"),
        ("nothing_of_this_name=3", "no field nothing_of_this_name; there are address, "),
        ("status=RETRY_EXCEEDED", "status is one of BAD_INDEX, "),
        ("status!=IBV_WC_RETRY_EXC", "did you mean RETRY_EXC_ERR?"),
        ("opcode=RDMA_WRIT", "did you mean RDMA_WRITE?"),
        ("syndrome=NAK_ACCESS", "syndrome is one of ACK, BAD_RESP_ERR, "),
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
    """Events from before are not looked at; the command it prints shows what led there."""
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


DECODERS = ("host_tools/analyzer", "device/mlx4", "device/rdma", "device/ethernet", "device/pci")


def test_every_field_that_a_line_can_have_is_known() -> None:
    """A decoder that writes a field of a new name makes it a name that conditions accept."""
    root = Path(fields.__file__).parents[2]
    found = {
        name
        for folder in DECODERS
        for file in (root / folder).rglob("*.py")
        if "timeline" not in file.parts and "model" not in file.parts
        for text in re.findall(r"""f"(?:[^"\\\\]|\\\\.)*\"""", file.read_text())
        for name in re.findall(r"(?:^f?\"|[ (])([a-z_]+)=\{", text)
    }
    assert len(found) > 30
    assert found <= {*fields.IN_WORDS, *DIRECT, "opcode"} | fields.of_tables()
