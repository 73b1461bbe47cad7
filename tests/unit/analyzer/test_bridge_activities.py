"""Activities of bridges and DMA engines from events: what a real log seldom has."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout import ioat
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Told, Value
from bluebridge.device.layout.ioat import DESCRIPTOR
from bluebridge.device.layout.ntb import gen1
from bluebridge.device.layout.ntb.models import MODELS
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.bridge_assembly import BridgeAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from tests.models.facts import with_fact

DEVICES = [*(f"{name}.{model.log_suffix}" for model in MODELS for name in "ab"), "a.dma", "b.dma"]
RING = 0x1000


class Log:
    """Events with their numbers, and what is made of them."""

    def __init__(self) -> None:
        self._assembler = BridgeAssembler(DEVICES)
        self.number = 0
        self.found: list[Activity] = []

    def event(
        self,
        device: str,
        kind: Kind,
        address: int = 0,
        data: bytes = b"",
        what: What = What.OTHER,
        obj: int = 0,
        bar: int = 0,
    ) -> None:
        """The next event."""
        event = Event(
            self.number, self.number / 1e6, device, kind, bar, what, obj, address, len(data), data
        )
        self.feed(event)

    def tell(self, device: str, fact: Fact, **values: Value) -> None:
        """The device tells a fact."""
        told, number = Told(fact, fact.unpack(fact.pack(values))), self.number
        self.feed(
            Event(number, number / 1e6, device, fact.kind, 0, What.OTHER, 0, 0, 0, b"", told=told)
        )

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self.number += 1
        self.found += self._assembler.feed(event, transaction_of(event))

    def write(self, device: str, address: int, value: int, width: int, bar: int = 0) -> None:
        """A register write."""
        self.event(device, Kind.MMIO_WRITE, address, value.to_bytes(width, "little"), bar=bar)

    def count(self, wanted: int) -> None:
        """The doorbell of a.dma's channel 0."""
        self.write("a.dma", ioat.CHANNEL.at("dma_count"), wanted, 2)

    def chain(self) -> None:
        """A channel starts anew."""
        self.write("a.dma", ioat.CHANNEL.at("chain_address_low"), RING, 4)

    def descriptor(self, index: int, size: int = 64, **flags: int) -> None:
        """The engine fetches a descriptor."""
        entry = DESCRIPTOR.pack(source=0x5000, destination=0x6000, size=size, **flags)
        address = RING + 64 * index
        self.event("a.dma", Kind.DMA_READ, address, bytes(entry), What.DESCRIPTOR)

    def copy(self, size: int = 64) -> None:
        """It copies."""
        self.event("a.dma", Kind.DMA_READ, 0x5000, bytes(size), What.COPY)
        self.event("a.dma", Kind.DMA_WRITE, 0x6000, bytes(size), What.COPY)

    def finish(self) -> list[Activity]:
        """All activities in the order in which they began."""
        self.found += self._assembler.finish()
        return sorted(self.found, key=lambda each: each.number)


def _kinds(found: list[Activity]) -> list[ActivityKind]:
    return [each.kind for each in found]


def test_descriptors_of_one_doorbell_name_it() -> None:
    log = Log()
    log.chain()
    log.count(2)
    for index in range(2):
        log.descriptor(index)
        log.copy()
    chain, first, second = log.finish()
    assert chain.kind is ActivityKind.ACCESS
    assert [one.role.value for one in first.transactions][:2] == ["doorbell", "descriptor read"]
    assert (second.kind, second.cause) == (ActivityKind.DESCRIPTOR, first.number)
    assert (first.status, second.status) == ("OK", "OK")


def test_a_doorbell_while_the_engine_works_belongs_to_its_own_descriptor() -> None:
    log = Log()
    log.chain()
    log.count(1)
    log.count(2)
    for index in range(2):
        log.descriptor(index)
        log.copy()
    log.count(2)  # nothing new
    _, first, second, late = log.finish()
    assert [one.number for one in first.transactions][:2] == [1, 3]
    assert [one.number for one in second.transactions][:2] == [2, 6]
    assert _kinds([first, second, late]) == [
        ActivityKind.DESCRIPTOR,
        ActivityKind.DESCRIPTOR,
        ActivityKind.ACCESS,
    ]


@pytest.mark.full
def test_counts_run_over_65536() -> None:
    log = Log()
    log.chain()
    log.count(0xFFFF)
    for index in range(0xFFFF):
        log.descriptor(index, size=1, null=1)
    log.count(1)
    log.descriptor(0, size=1, null=1)
    log.descriptor(1, size=1, null=1)
    found = log.finish()
    *_, zero, one = found
    assert len(zero.transactions) == 2
    assert one.cause == zero.number
    assert not [each for each in found[1:] if each.kind is not ActivityKind.DESCRIPTOR]


def test_a_halted_channel_says_why() -> None:
    log = Log()
    log.chain()
    log.count(1)
    log.descriptor(0)
    log.tell("a.dma", Fact.CHANNEL_HALTED, channel=0, error="READ_DATA", address=0x1000)
    word = (RING | ioat.State.HALTED).to_bytes(8, "little")
    log.event("a.dma", Kind.DMA_WRITE, 0x2000, word, What.COMPLETION)
    log.event("a.dma", Kind.IRQ, 0)
    _, halted = log.finish()
    assert halted.status == "channel 0 halted: READ_DATA at 0x1000"
    assert [one.role.value for one in halted.transactions] == [
        "doorbell", "descriptor read", "note", "completion word", "interrupt",
    ]  # fmt: skip


def test_a_copy_into_a_doorbell_is_its_cause() -> None:
    """The bridge's events lie between the engine's read and its write."""
    log = Log()
    log.chain()
    log.count(1)
    log.descriptor(0, size=4)
    log.event("a.dma", Kind.DMA_READ, 0x5000, bytes(4), What.COPY)
    log.write("a.ntb4", 0x100 + 4 * 3, 1, 4)
    log.event("b.ntb4", Kind.IRQ, 3)
    log.event("a.dma", Kind.DMA_WRITE, 0x6000, bytes(4), What.COPY)
    _, copy, bell = log.finish()
    assert (bell.kind, bell.cause) == (ActivityKind.DOORBELL, copy.number)
    assert [one.device for one in bell.transactions] == ["a.ntb4", "b.ntb4"]
    assert (copy.status, len(copy.transactions)) == ("OK", 4)


def test_the_peer_s_registers_through_a_window_of_the_first_generation() -> None:
    log = Log()
    log.write("a.ntb1", gen1.CONTROL.at("primary4_base"), 0x4000_0000, 8)
    log.write("b.ntb1", gen1.CONTROL.at("register0_base"), 0x4000_0000, 8)
    log.write("a.ntb1", gen1.CONTROL.at("doorbell"), 1 << 6, 2, bar=4)
    log.event("b.ntb1", Kind.IRQ, 1)
    log.write("a.ntb1", gen1.SPAD.at("spad", 2), 7, 4, bar=4)
    log.write("a.ntb1", 0x10_0000, 7, 4, bar=4)
    _, _, bell, scratchpad, store = log.finish()
    assert (bell.kind, bell.title) == (ActivityKind.DOORBELL, "doorbell 6 of b")
    assert bell.transactions[1].role.value == "interrupt"
    assert scratchpad.title == "scratchpad 2 of b = 0x7"
    assert (store.kind, store.status) == (ActivityKind.STORE, "nothing arrived")


def test_an_interrupt_that_is_not_set_up() -> None:
    log = Log()
    log.write("a.ntb4", 0x100, 1, 4)
    log.tell("b.ntb4", Fact.INTERRUPT_LOST, vector=0, lost=1)
    (bell,) = log.finish()
    assert bell.status == "interrupt 0 is not set up"


def test_a_store_after_a_gap_is_another_run() -> None:
    """Events of other functions lie between."""
    log = Log()
    log.write("a.ntb4", 0x10, 1, 8, bar=2)
    log.number += 1
    log.write("a.ntb4", 0x18, 1, 8, bar=2)
    assert len(log.finish()) == 2


REGISTERS = sorted({
    block.base + index * block.stride + register.offset
    for model in MODELS
    for block in model.blocks
    for index in range(min(block.count, 3))
    for register in block.registers
})  # fmt: skip
CHANNEL = [ioat.CHANNEL.at(register.name, 1) for register in ioat.CHANNEL.registers]
DATA = st.sampled_from([b"\1\0\0\0", b"\xff" * 8, bytes(4), bytes(64), b"", b"\3"])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(DEVICES[:4] + DEVICES[-2:]),
        st.sampled_from(list(Kind)),
        st.sampled_from([*REGISTERS, *CHANNEL, 0, 4, 8, 12]),
        DATA,
        st.sampled_from([*What]),
        st.sampled_from([0, 1]),
        st.sampled_from([0, 0, 2, 4]),
        st.sampled_from([0, 0, 0, 1]),
    ),
    max_size=120,
)


@given(EVENTS)
def test_no_event_of_any_log_is_lost_or_doubled(
    events: list[tuple[str, Kind, int, bytes, What, int, int, int]],
) -> None:
    """Also of one whose writer or guests are hostile."""
    log, fed = Log(), 0
    for device, kind, address, data, what, obj, bar, gap in events:
        if kind in (Kind.WIRE, Kind.BLUEFLAME):
            continue
        log.number += gap
        fed += 1
        size, number = len(data), log.number
        log.feed(
            with_fact(
                Event(number, number / 1e6, device, kind, bar, what, obj, address, size, data)
            )
        )
    found = log.finish()
    counted: Counter[int] = Counter()
    for activity in found:
        parts = [one for one in activity.transactions if not one.repeated]
        assert activity.number == min(one.number for one in parts)
        assert activity.begin <= activity.end
        assert sorted(place for place, _ in activity.tree()) == list(range(len(parts)))
        counted.update(one.number for one in parts)
        fed -= sum(one.stores for one in parts)
    assert fed == 0
    assert set(counted.values()) <= {1}
