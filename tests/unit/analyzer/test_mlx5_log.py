"""The log of a ConnectX-5: its card, the words of its registers and commands, its activities."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.mlx5.commands import ENTRY, INPUT, Opcode
from bluebridge.device.layout.mlx5.cqe import CQE
from bluebridge.device.layout.mlx5.event_queues import (
    COMMAND_EQE,
    RDMA_FAULT_EQE,
    EventType,
    FaultSubtype,
)
from bluebridge.device.layout.mlx5.wqe import INLINE, SendOpcode
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import activities
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Transfer, transfers
from bluebridge.host_tools.analyzer.analysis.classify import transactions as shown
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.mlx4 import MLX4
from bluebridge.host_tools.analyzer.devices.mlx5 import MLX5
from bluebridge.host_tools.analyzer.devices.registry import model_of

UAR = 0x100 * 4096
QUEUE = 0x7000
QPN = 0x48


def write_log(folder: Path) -> None:
    """Write a log of a ConnectX-5 `a`, which makes an event queue, and a ConnectX-3 `b`."""
    log = FileLog(folder)
    a, b = log.device("a", "connectx5"), log.device("b", "connectx3")
    for device in (a, b):
        log.record(device, Kind.MMIO_WRITE, 0, init_segment.DOORBELL, 4, b"\0\0\0\4")
    head = bytes(INPUT.pack(opcode=Opcode.CREATE_EQ))
    entry = bytes(ENTRY.pack(type=7, owner=1, input=head, input_length=0x118, output_length=16))
    log.record(a, Kind.DMA_READ, 0, QUEUE, 64, entry, What.COMMAND_ENTRY, 2)
    log.record(a, Kind.DMA_READ, 0, 0x8000, 576, bytes(576), What.MAILBOX_IN, Opcode.CREATE_EQ)
    log.record(a, Kind.DMA_WRITE, 0, QUEUE + 0x20, 31, bytes(31), What.COMMAND_ENTRY, 2)
    log.record(a, Kind.DMA_WRITE, 0, QUEUE + 0x3F, 1, b"\0", What.COMMAND_ENTRY, 2)
    log.tell(a, Fact.FIRMWARE_COMMAND, name="CREATE_EQ", slot=2, word="eqn", number=7,
             status="OK", us=40)  # fmt: skip
    event = bytes(COMMAND_EQE.pack(type=EventType.COMMAND, slots=4))
    log.record(a, Kind.DMA_WRITE, 0, 0x9000, 64, event, What.EQE, 1)
    log.record(a, Kind.IRQ, 0, 0, 0, b"")
    log.record(a, Kind.MMIO_WRITE, 0, UAR + init_segment.EQ_ARM, 4, b"\1\0\0\1")
    log.close()


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    """A reader of the log that `write_log` writes."""
    write_log(tmp_path)
    return LogReader(tmp_path)


def test_the_meta_file_says_which_card_a_device_is(reader: LogReader) -> None:
    meta = json.loads((reader.folder / "meta.json").read_text())
    assert meta["cards"] == {"a": "connectx5", "b": "connectx3"}
    assert [model_of(name) for name in reader.meta["devices"]] == [MLX5, MLX4]


def test_an_adapter_of_a_log_without_cards_is_a_connectx3(tmp_path: Path) -> None:
    write_log(tmp_path)
    path = tmp_path / "meta.json"
    meta = json.loads(path.read_text())
    del meta["cards"]
    path.write_text(json.dumps(meta))
    assert {model_of(event.device) for event in LogReader(tmp_path)} == {MLX4}


def test_one_register_has_another_name_on_each_card(reader: LogReader) -> None:
    first, second = list(reader)[:2]
    assert decode(first) == "INIT.cmd_dbell=0x4"
    assert "cmd_dbell" not in decode(second)


def test_commands_are_told_by_name(reader: LogReader) -> None:
    lines = [decode(event) for event in reader if event.device == "a"]
    assert "command entry 2: CREATE_EQ input=280 output=16" in lines
    assert "input mailbox of CREATE_EQ" in lines
    assert "CREATE_EQ slot=2 eqn=0x7 OK 40 us" in lines
    assert "EQE eqn=1 COMMAND slots=0x4" in lines
    assert "UAR[0].eq_arm eqn=1 ci=1" in lines


def test_a_command_is_one_activity_up_to_its_interrupt(reader: LogReader) -> None:
    found: list[Activity] = list(activities(reader))
    (command,) = (each for each in found if each.kind is ActivityKind.COMMAND)
    assert (command.title, command.status) == ("CREATE_EQ eqn=0x7", "OK")
    assert len(command.transactions) == 8


class Stores:
    """A log of one SEND of 60 bytes by queue pair 0x48, its stores and what the device did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = FileLog(folder)
        self.device = self.log.device("a", "connectx5")
        head = pack(">IIII", 7 << 8 | SendOpcode.SEND, QPN << 8 | 4, 8, 0)
        self.entry = (head + pack(">I", INLINE | 44)).ljust(64, b"\1")

    def store(self, first: int, end: int) -> None:
        """Software stores these eighths of the line."""
        for place in range(8 * first, 8 * end, 8):
            self.log.work = 0
            at = UAR + init_segment.SEND_DOORBELL + place
            self.log.record(self.device, Kind.MMIO_WRITE, 0, at, 8, self.entry[place : place + 8])

    def take(self, kind: Kind) -> None:
        """The device takes the entry, from its register or by reading it."""
        self.log.work = self.device + 1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT | 7
        self.log.record(self.device, kind, 0, 0, 64, self.entry, What.SQ_WQE, QPN)

    def transfer(self) -> Transfer:
        """The work request that the log has."""
        done = bytes(CQE.pack(opcode=0, qpn=QPN, wqe_counter=7))
        self.log.record(self.device, Kind.DMA_WRITE, 0, 0x4000, 64, done, What.CQE, 0x80)
        self.log.close()
        (found,) = transfers(self.folder)
        return found


def test_stores_that_follow_a_doorbell_make_it_the_head_of_an_entry(tmp_path: Path) -> None:
    run = Stores(tmp_path)
    run.store(0, 8)
    run.take(Kind.BLUEFLAME)
    found = run.transfer()
    assert found.posted_by is PostedBy.BLUEFLAME
    (line,) = found.of(Role.BLUEFLAME)
    assert (line.length, line.stores, bytes(line.data)) == (64, 8, run.entry)
    assert not found.count(Role.DOORBELL)
    named = [decode(event).partition(" ")[0] for event in list(LogReader(tmp_path))[:8]]
    assert named == ["UAR[0].send0", *["UAR[0].entry0"] * 7]
    roles = [each.role for each in shown(LogReader(tmp_path))]
    assert roles == [Role.BLUEFLAME, Role.ENTRY, Role.CQE]


def test_a_doorbell_alone_stays_one(tmp_path: Path) -> None:
    run = Stores(tmp_path)
    run.store(0, 1)
    run.take(Kind.DMA_READ)
    found = run.transfer()
    assert found.posted_by is PostedBy.DOORBELL
    assert [found.count(role) for role in (Role.DOORBELL, Role.BLUEFLAME)] == [1, 0]


@pytest.mark.parametrize("place", [1, 8])
def test_an_entry_that_was_fetched_before_its_stores_came(tmp_path: Path, place: int) -> None:
    run = Stores(tmp_path)
    run.store(0, place)
    run.take(Kind.DMA_READ)
    run.store(place, 8)
    found = run.transfer()
    assert found.posted_by is (PostedBy.EARLY if place == 1 else PostedBy.FALLBACK)
    assert [line.stores for line in found.of(Role.BLUEFLAME)] == [8]


def test_a_page_fault_is_an_activity_as_long_as_it_lasted(tmp_path: Path) -> None:
    """Its event says what is wanted; the record of its end comes with the duration."""
    log = FileLog(tmp_path)
    a = log.device("a", "connectx5")
    log.record(a, Kind.MMIO_WRITE, 0, init_segment.DOORBELL, 4, b"\0\0\0\4")
    wanted = RDMA_FAULT_EQE.pack(
        type=EventType.PAGE_FAULT, sub_type=FaultSubtype.RDMA, rkey=0x1234, va=0x7F00, length=64,
        fault=6, token=3,
    )  # fmt: skip
    log.record(a, Kind.DMA_WRITE, 0, 0x9000, 64, bytes(wanted), What.EQE, 5)
    log.tell(a, Fact.PAGE_FAULT, qpn=QPN, fault=3, what="write by key 0x1234", address=0x7F00,
             bytes=64, status="OK", us=1)  # fmt: skip
    log.close()
    reader = LogReader(tmp_path)
    lines = [decode(event) for event in reader]
    assert "EQE eqn=5 PAGE_FAULT" in lines[1] and "rkey=0x1234 " in lines[1]
    assert lines[2].endswith("page fault 0x3, write by key 0x1234, 0x7f00+0x40, OK after 1 us")
    (fault,) = [each for each in activities(reader) if each.kind is ActivityKind.PAGE_FAULT]
    assert (fault.status, fault.name) == ("OK", "write by key 0x1234")
    assert 0 < fault.duration_us < 1.5


def test_a_command_on_a_key_is_an_activity_without_its_transfers(tmp_path: Path) -> None:
    """From the doorbell to the event; the record has the key's context."""
    log = FileLog(tmp_path)
    a = log.device("a", "connectx5")
    log.record(a, Kind.MMIO_WRITE, 0, init_segment.DOORBELL, 4, b"\0\0\0\1")
    log.tell(a, Fact.KEY_COMMAND, name="CREATE_MKEY", word="mkey", number=5, status="OK", us=9,
             context="free=0x1 access_mode=0x1")  # fmt: skip
    event = bytes(COMMAND_EQE.pack(type=EventType.COMMAND, slots=1))
    log.record(a, Kind.DMA_WRITE, 0, 0x9000, 64, event, What.EQE, 1)
    log.close()
    reader = LogReader(tmp_path)
    lines = [decode(each) for each in reader]
    assert "CREATE_MKEY slot=0 mkey=0x5 OK 9 us; free=0x1 access_mode=0x1" in lines
    (command,) = (each for each in activities(reader) if each.kind is ActivityKind.COMMAND)
    assert (command.title, command.status) == ("CREATE_MKEY mkey=0x5", "OK")
    assert len(command.transactions) == 3
