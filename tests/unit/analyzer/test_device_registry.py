"""A new model of devices is a row of the registry: no other module of the analyzer knows one."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Told
from bluebridge.device.layout.fields import Access, Register, RegisterBlock
from bluebridge.device.layout.ntb import models
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler, ActivityKind
from bluebridge.host_tools.analyzer.analysis import PostedBy, TransferAssembler
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices import registry
from bluebridge.host_tools.analyzer.devices.model import (
    Adapter,
    CommandRegister,
    Completed,
    Data,
    DeviceKind,
    DeviceModel,
    EventKind,
    QueueEvent,
    SendHead,
)
from bluebridge.host_tools.analyzer.transaction import Role
from bluebridge.host_tools.analyzer.views import activities as activity_view
from bluebridge.host_tools.show.ports import NTB

TOY_REGISTERS = RegisterBlock(
    "TOY",
    0,
    0,
    0x100,
    (
        Register("bell", 0x10, 32, Access.WO, "rings"),
        Register("rung", 0x18, 32, Access.W1C, "what the peer has rung"),
        Register("quiet", 0x20, 32, Access.RW, "1 = no interrupt"),
        Register("note", 0x28, 32, Access.RW, "scratchpad"),
        Register("peer_note", 0x30, 32, Access.RW, "the peer's scratchpad"),
        Register("edge", 0x38, 32, Access.RW, "end of the window"),
    ),
    order="little",
)
TOY_BRIDGE = replace(
    models.GEN4,
    name="toy-bridge",
    log_suffix="toy",
    blocks=(TOY_REGISTERS,),
    uses=Uses(
        {
            ("TOY", "bell"): RegisterUse(Use.RING),
            ("TOY", "rung"): RegisterUse(Use.PENDING),
            ("TOY", "quiet"): RegisterUse(Use.MASK),
            ("TOY", "note"): RegisterUse(Use.OWN_SCRATCHPAD),
            ("TOY", "peer_note"): RegisterUse(Use.PEER_SCRATCHPAD),
            ("TOY", "edge"): RegisterUse(Use.WINDOW_LIMIT, 2),
        },
        doorbells_per_vector=4,
        config=((0xE0, 2, "toy straps"),),
    ),
)


class Log:
    """Events with their numbers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(
        self,
        device: str,
        kind: Kind,
        address: int,
        data: bytes,
        *,
        bar: int = 0,
        what: What = What.OTHER,
        obj: int = 0,
        work: int = 0,
    ) -> Event:
        """The next event."""
        number = len(self.events)
        event = Event(
            number, number / 1e6, device, kind, bar, what, obj, address, len(data), data, work
        )
        self.events.append(event)
        return event

    def activities(self, *devices: str) -> list[Activity]:
        """Return what they are, in the order in which each began."""
        assembler = ActivityAssembler(devices)
        found = [each for event in self.events for each in assembler.feed(event)]
        return sorted([*found, *assembler.finish()], key=lambda each: each.number)


@pytest.fixture
def toy_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the bridge, in the table of bridges and hence in the registry."""
    monkeypatch.setitem(models.BY_NAME, TOY_BRIDGE.name, TOY_BRIDGE)
    monkeypatch.setitem(registry.MODELS, "toy", registry.bridge_row(TOY_BRIDGE))


@pytest.mark.usefixtures("toy_bridge")
def test_registers_of_a_new_bridge_have_their_names() -> None:
    log = Log()
    word = (7).to_bytes(4, "little")
    assert decode(log.add("a.toy", Kind.MMIO_WRITE, 0x20, word)) == "TOY.quiet=0x7"
    assert decode(log.add("a.toy", Kind.MMIO_WRITE, 0x40, word, bar=2)) == "window BAR2 at 0x40"
    assert decode(log.add("a.toy", Kind.CONFIG_READ, 0xE0, b"\1\2")) == "toy straps=0x201"


@pytest.mark.usefixtures("toy_bridge")
def test_doorbells_and_scratchpads_of_a_new_bridge_are_activities() -> None:
    log = Log()
    log.add("a.toy", Kind.MMIO_WRITE, 0x30, (5).to_bytes(4, "little"))
    log.add("a.toy", Kind.MMIO_WRITE, 0x10, (1 << 6).to_bytes(4, "little"))
    log.add("b.toy", Kind.IRQ, 1, b"")  # four doorbells have a vector
    log.add("b.toy", Kind.MMIO_READ, 0x18, (1 << 6).to_bytes(4, "little"))
    log.add("b.toy", Kind.MMIO_WRITE, 0x18, (1 << 6).to_bytes(4, "little"))
    log.add("b.toy", Kind.MMIO_READ, 0x28, (5).to_bytes(4, "little"))
    found = log.activities("a.toy", "b.toy")
    assert [(each.kind, each.title, each.status) for each in found] == [
        (ActivityKind.ACCESS, "scratchpad 0 of b = 0x5", ""),
        (ActivityKind.DOORBELL, "doorbell 6 of b", "OK"),
        (ActivityKind.ACCESS, "read TOY.note=0x5", ""),
    ]
    assert len(found[1].transactions) == 4
    assert found[2].cause == found[0].number
    assert "doorbell 6 of b" in activity_view.line(found[1])


@pytest.mark.usefixtures("toy_bridge")
def test_a_new_bridge_has_a_page() -> None:
    values = {0x18: 0x40, 0x20: 0x3, 0x28: 0x5, 0x38: 0x1000}
    line = b"".join(values.get(at, 0).to_bytes(4, "little") for at in range(0, 64, 4))
    window = {"bar": 2, "lut": None, "base": 0, "length": 0, "closed": 0, "aborts": 0}
    row = {
        "function": "a.toy", "model": "toy-bridge", "link": True, "wanted": True, "lost": 0,
        "partition": None, "hung": False, "windows": [window], "lines": {"0": line.hex()},
    }  # fmt: skip
    (item,) = NTB.items(row)
    assert (item["doorbell"], item["doorbell-mask"]) == ("0x40", "0x3")
    assert (item["scratchpad"], item["message"]) == ({"0": "0x00000005"}, {})
    assert item["window"]["bar2"]["limit"] == "0x1000"


class ToyStatus(IntEnum):
    """How work requests of the toy end."""

    TOO_LARGE = 3
    FLUSHED = 4


def _completed(data: Data) -> Completed | None:
    """QPN, index and status, a byte each."""
    if len(data) < 3:
        return None
    return Completed(data[0], data[1], "OK" if not data[2] else ToyStatus(data[2]).name)


def _written(event: Event) -> tuple[Role, int]:
    return (Role.DOORBELL, event.data[0]) if event.address == 0 else (Role.REGISTER_WRITE, 0)


TOY_CARD = DeviceModel(
    DeviceKind.ADAPTER,
    "card",
    "toy card",
    {0: (replace(TOY_REGISTERS, name="CARD"),)},
    words={What.SQ_WQE: lambda event: f"toy entry {event.data.hex()}"},
    adapter=Adapter(
        line=32,
        head=2,
        page=lambda offset: offset >> 12,
        send_head=lambda data: SendHead(("NOTHING", "TELL")[data[0]], 16, data[1], 0),
        completed=_completed,
        failure=lambda data: data[2] or None,
        statuses={int(each): (each.name,) for each in ToyStatus},
        operation=lambda data: "TELL",
        flushed=ToyStatus.FLUSHED,
        event=lambda data: QueueEvent(EventKind.COMPLETION, data[0]),
        written=_written,
        command=CommandRegister(0, 0x80, 0x90, 0x8C, 1, 2, hex, ("GO",), ("FINE",)),
        states=("OFF", "ON"),
        transitions={"GO": (("OFF",), "ON")},
        failures=(),
        flushing="OFF",
        failed="OFF",
        described="",
        context=lambda data: None,
        made={},
        resized={},
        received=lambda data: None,
        consumed=lambda event: None,
        reset=(0, 0x50),
    ),
)


@pytest.fixture
def toy_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the card."""
    monkeypatch.setitem(registry.MODELS, "card", TOY_CARD)


@pytest.mark.usefixtures("toy_card")
@pytest.mark.parametrize(("code", "status"), [(0, "OK"), (3, "TOO_LARGE")])
def test_a_work_request_of_a_new_card(code: int, status: str) -> None:
    log = Log()
    work = 1 << 56 | 9 << 32 | 5  # device number 0, QPN 9, slot 5
    log.add("a.card", Kind.MMIO_WRITE, 0, b"\x09")
    entry = log.add("a.card", Kind.DMA_READ, 0x1000, b"\1\5", what=What.SQ_WQE, obj=9, work=work)
    log.add("a.card", Kind.DMA_WRITE, 0x2000, bytes((9, 5, code)), what=What.CQE, obj=2, work=work)
    log.add("a.card", Kind.DMA_WRITE, 0x3000, b"\2", what=What.EQE, obj=1)
    log.add("a.card", Kind.IRQ, 1, b"")
    assert decode(entry) == "toy entry 0105"
    assert decode(log.events[0]) == "BAR0+0x0"
    assembler = TransferAssembler(["a.card"])
    for event in log.events:
        assert not assembler.feed(event)
    (transfer,) = assembler.finish()
    assert (transfer.opcode, transfer.status, transfer.posted_by) == (
        "TELL", status, PostedBy.DOORBELL
    )  # fmt: skip
    roles = [one.role for one in transfer.transactions]
    assert roles == [Role.DOORBELL, Role.WQE, Role.CQE, Role.EQE, Role.INTERRUPT]


@pytest.mark.usefixtures("toy_card")
def test_a_command_and_a_reset_of_a_new_card() -> None:
    log = Log()
    log.add("a.card", Kind.MMIO_WRITE, 0x80, bytes(4))
    log.add("a.card", Kind.MMIO_WRITE, 0x8C, (0x61).to_bytes(4, "big"))
    log.add("a.card", Kind.MMIO_WRITE, 0x50, bytes(4))
    log.add("a.card", Kind.RESET, 0, b"").told = Told(Fact.RESET, {"cause": "function"})
    found = log.activities("a.card")
    assert [(each.kind, each.title) for each in found] == [
        (ActivityKind.COMMAND, "0x61"),
        (ActivityKind.RESET, "function reset"),
    ]
