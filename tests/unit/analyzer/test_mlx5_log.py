"""The log of a ConnectX-5: its card, the words of its registers and commands, its activities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.mlx5.commands import ENTRY, INPUT, Opcode
from bluebridge.device.layout.mlx5.event_queues import COMMAND_EQE, EventType
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import activities
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.mlx4 import MLX4
from bluebridge.host_tools.analyzer.devices.mlx5 import MLX5
from bluebridge.host_tools.analyzer.devices.registry import model_of

UAR = 0x100 * 4096
QUEUE = 0x7000


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
    """That log."""
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
