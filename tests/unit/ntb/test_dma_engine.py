"""The DMA engine: descriptors, completions, errors, turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.dma.engine import TURN_BYTES, TURN_DESCRIPTORS, TURN_SECONDS
from bluebridge.device.layout.ioat import DESCRIPTOR, ChannelCommand, ChannelError, State
from tests.models.ntb_pair import ENGINE, REGISTERS, SIZE, WINDOW0, Guest, Pair


class Ring:
    """A channel with a circular list of descriptors, as ioatdma keeps it."""

    def __init__(self, guest: Guest, number: int = 0, entries: int = 16) -> None:
        self.guest = guest
        self.number = number
        self.entries = entries
        self.base = guest.bus.allocate(64 * entries)
        self.completion = guest.bus.allocate(64)
        self.posted = 0
        self.write(0x03 - 0x80 * (number + 1), 1, 9)
        self.write(0x18, 4, self.completion)
        self.write(0x1C, 4, 0)
        self.write(0x10, 4, self.base)
        self.write(0x14, 4, 0)

    def write(self, offset: int, width: int, value: int) -> None:
        """A register of the channel."""
        at = 0x80 * (self.number + 1) + offset
        self.guest.engine.bar_write(0, at, value.to_bytes(width, "little"))

    def read(self, offset: int, width: int) -> int:
        """A register of the channel."""
        at = 0x80 * (self.number + 1) + offset
        return int.from_bytes(self.guest.engine.bar_read(0, at, width), "little")

    def post(self, source: int, target: int, size: int, **more: int) -> int:
        """Put a copy into the ring; the address of its descriptor."""
        index = self.posted % self.entries
        address = self.base + 64 * index
        after = self.base + 64 * ((index + 1) % self.entries)
        flags = {"completion_write": 1, "interrupt": 1} | more
        entry = DESCRIPTOR.pack(source=source, destination=target, size=size, next=after, **flags)
        self.guest.bus.poke(address, entry)
        self.posted += 1
        return address

    def ring(self) -> None:
        """Tell the engine."""
        self.write(0x06, 2, self.posted & 0xFFFF)

    @property
    def state(self) -> int:
        """State in channel_status."""
        return self.read(0x08, 8) & 7

    @property
    def word(self) -> int:
        """The completion word."""
        return int.from_bytes(self.guest.bus.peek(self.completion, 8), "little")


@pytest.fixture
def pair() -> Pair:
    """A pair whose link is up."""
    found = Pair()
    found.bring_up()
    return found


@pytest.fixture
def ring(pair: Pair) -> Ring:
    """Channel 0 of guest a."""
    return Ring(pair.a)


def test_a_copy_completes_and_interrupts(pair: Pair, ring: Ring) -> None:
    source, target = pair.a.bus.allocate(3000), pair.a.bus.allocate(3000)
    data = bytes(range(250)) * 12
    pair.a.bus.poke(source, data)
    done = ring.post(source, target, len(data))
    ring.ring()
    assert pair.a.bus.peek(target, len(data)) == data
    assert ring.word == done | State.IDLE and ring.read(0x08, 8) == done | State.IDLE
    assert pair.a.dma_bus.take_interrupts() == [0]


def test_the_probe_finds_version_and_channels(pair: Pair) -> None:
    read = pair.a.engine.bar_read
    assert (read(0, 0x00, 1), read(0, 0x01, 1), read(0, 0x08, 1)) == (b"\x04", b"\x14", b"\x34")
    assert read(0, 0x10, 4) == bytes(4) and read(0, 0x84, 1) == b"\0"


def test_the_interrupt_waits_to_be_rearmed(pair: Pair, ring: Ring) -> None:
    for _ in range(3):
        ring.post(0, 0, 1, null=1)
        ring.ring()
    assert pair.a.dma_bus.take_interrupts() == [0]
    ring.write(0x00, 2, 0x1D)
    assert pair.a.dma_bus.take_interrupts() == [0]
    ring.write(0x00, 2, 0x1D)
    assert pair.a.dma_bus.take_interrupts() == []


def test_more_than_a_turn_continues_from_the_loop(pair: Pair) -> None:
    ring = Ring(pair.a, entries=4 * TURN_DESCRIPTORS)
    for _ in range(2 * TURN_DESCRIPTORS + 1):
        ring.post(0, 0, 1, null=1)
    ring.ring()
    assert ring.state == State.ACTIVE
    pair.a.dma_bus.run()
    assert ring.state == State.IDLE


def test_the_count_of_descriptors_goes_on_behind_65535(pair: Pair) -> None:
    """dmacount has 16 bits; the same list of descriptors is walked until it has come round."""
    ring = Ring(pair.a)
    source, target = pair.a.bus.allocate(64), pair.a.bus.allocate(64)
    for _ in range(ring.entries):
        ring.post(0, 0, 1, null=1, completion_write=0, interrupt=0)
    ring.ring()
    while ring.posted < 1 << 16:
        ring.posted += ring.entries
        ring.ring()
        assert ring.state == State.IDLE
    pair.a.bus.poke(source, b"behind 65535")
    last = ring.post(source, target, 12)
    ring.ring()
    assert pair.a.bus.peek(target, 12) == b"behind 65535"
    assert ring.word == last | State.IDLE


def test_a_busy_channel_lets_others_pass(pair: Pair) -> None:
    greedy, modest = Ring(pair.a, 0), Ring(pair.a, 1)
    source, target = pair.a.bus.allocate(SIZE), pair.a.bus.allocate(SIZE)
    for _ in range(3 * TURN_BYTES // SIZE):
        greedy.post(source, target, SIZE)
    greedy.ring()
    assert greedy.state == State.ACTIVE
    modest.post(source, target, 8)
    modest.ring()
    pair.a.dma_bus.turn()
    assert modest.state == State.IDLE and greedy.state == State.ACTIVE
    pair.a.dma_bus.run()
    assert greedy.state == State.IDLE


def test_a_copy_from_registers_is_divided_by_time(pair: Pair) -> None:
    """Eight bytes at a time, which is slow: the others have their turns in between."""
    ring = Ring(pair.a)
    target = pair.a.bus.allocate(0x1000)
    pair.a.tick = TURN_SECONDS / 16
    ring.post(REGISTERS, target, 0x1000)
    ring.ring()
    turns = 0
    while ring.state == State.ACTIVE:
        assert ring.word == 0
        pair.a.dma_bus.turn()
        turns += 1
    assert turns >= 0x1000 // 8 // 16 - 1 and ring.state == State.IDLE
    assert pair.a.bus.peek(target, 8) == pair.a.bridge.bar_read(0, 0, 8)


def test_descriptors_that_are_slow_share_the_turn(pair: Pair) -> None:
    """Four channels whose descriptor points at itself: the turn is as long as one channel's."""
    rings = [Ring(pair.a, number) for number in range(4)]
    target = pair.a.bus.allocate(0x10000)
    pair.a.tick = TURN_SECONDS / 16
    for ring in rings:
        entry = DESCRIPTOR.pack(source=REGISTERS, destination=target, size=0x1000, next=ring.base)
        pair.a.bus.poke(ring.base, entry)
        ring.write(0x06, 2, 0xFFFF)
    for _ in range(20):
        before = pair.a.now
        pair.a.dma_bus.turn()
        assert pair.a.now - before < 2 * TURN_SECONDS
    assert {ring.state for ring in rings} == {State.ACTIVE}
    for ring in rings:
        ring.write(0x04, 1, ChannelCommand.RESET)
    assert {ring.state for ring in rings} == {State.HALTED}
    pair.a.dma_bus.run()


def test_a_row_of_counts_is_one_turn(pair: Pair) -> None:
    ring = Ring(pair.a)
    target = pair.a.bus.allocate(0x10000)
    pair.a.tick = TURN_SECONDS / 16
    entry = DESCRIPTOR.pack(source=REGISTERS, destination=target, size=0x1000, next=ring.base)
    pair.a.bus.poke(ring.base, entry)
    before = pair.a.now
    for count in range(1, 100):
        ring.write(0x06, 2, count)
    assert pair.a.now - before < 2 * TURN_SECONDS


def test_suspend_waits_for_the_copy_under_way(pair: Pair, ring: Ring) -> None:
    target = pair.a.bus.allocate(0x1000)
    pair.a.tick = TURN_SECONDS / 16
    ring.post(REGISTERS, target, 0x1000)
    ring.post(0, 0, 1, null=1)
    ring.ring()
    ring.write(0x04, 1, ChannelCommand.SUSPEND)
    assert ring.state == State.ACTIVE
    pair.a.dma_bus.run()
    assert ring.state == State.SUSPENDED and ring.read(0x08, 8) & ~7 == ring.base
    ring.write(0x04, 1, ChannelCommand.RESUME)
    pair.a.dma_bus.run()
    assert ring.state == State.IDLE


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 20000), st.integers(1, 20000))
def test_a_copy_through_a_window_lands_as_far_as_the_window_goes(
    before: int, after: int, size: int, window: int
) -> None:
    pair = Pair()
    pair.bring_up()
    ring = Ring(pair.a)
    memory = pair.b.bus.allocate(0x10000)
    pair.b.open_window(0, memory, window)
    source = pair.a.bus.allocate(0x10000)
    data = bytes(n * 7 & 0xFF for n in range(size))
    pair.a.bus.poke(source + before, data)
    ring.post(source + before, WINDOW0 + after, size)
    ring.ring()
    landed = max(0, min(size, window - after))
    found = pair.b.bus.peek(memory, 0x10000)
    expected = bytearray(0x10000)
    expected[after : after + landed] = data[:landed]
    assert found == expected
    assert ring.state == State.IDLE and pair.a.engine.copier.dropped == size - landed


def test_a_copy_out_of_a_window(pair: Pair, ring: Ring) -> None:
    memory, target = pair.b.bus.allocate(0x1000), pair.a.bus.allocate(0x1000)
    pair.b.bus.poke(memory, b"there")
    pair.b.open_window(0, memory, 0x100)
    ring.post(WINDOW0, target, 0x101)
    ring.ring()
    assert pair.a.bus.peek(target, 5) == b"there"
    assert pair.a.bus.peek(target + 0x100, 1) == b"\xff"


def test_a_copy_rings_a_doorbell_of_the_peer(pair: Pair, ring: Ring) -> None:
    """ntb_peer_db_addr: the address of a register, reached by the DMA engine."""
    one = pair.a.bus.allocate(4)
    pair.a.bus.poke(one, b"\1\0\0\0")
    pair.b.write(0x48, 8, 0)
    ring.post(one, REGISTERS + 0x100 + 4 * 6, 4)
    ring.ring()
    assert pair.b.bus.take_interrupts() == [6]


def test_a_copy_interrupts_a_processor_of_the_peer(pair: Pair, ring: Ring) -> None:
    word = pair.a.bus.allocate(4)
    pair.a.bus.poke(word, b"\x41\0\0\0")
    pair.b.open_window(0, 0xFEE00000, SIZE)
    ring.post(word, WINDOW0 + 0x2000, 4)
    ring.ring()
    assert pair.b.bus.messages == [(0xFEE02000, b"\x41\0\0\0")]


def test_an_engine_that_rings_itself_does_not_recur(pair: Pair, ring: Ring) -> None:
    count = pair.a.bus.allocate(2)
    pair.a.bus.poke(count, b"\x02\0")
    ring.post(count, ENGINE + 0x86, 2)
    ring.post(0, 0, 1, null=1)
    ring.write(0x06, 2, 1)
    pair.a.dma_bus.run()
    assert ring.state == State.IDLE and ring.read(0x08, 8) & ~7 == ring.base + 64


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"source": 0x70000000, "size": 8}, ChannelError.READ_DATA),
        ({"target": 0x70000000, "size": 8}, ChannelError.WRITE_DATA),
        ({"size": 0}, ChannelError.LENGTH),
        ({"size": 0xFFFFFFFF}, ChannelError.LENGTH),
        ({"size": 8, "operation": 0x87}, ChannelError.CONTROL),
    ],
)
def test_what_cannot_be_done_halts_the_channel(
    pair: Pair, ring: Ring, entry: dict[str, int], error: ChannelError
) -> None:
    buffer = pair.a.bus.allocate(64)
    good = ring.post(buffer, buffer + 8, 8)
    ring.post(**({"source": buffer, "target": buffer} | entry))
    ring.ring()
    assert ring.state == State.HALTED and ring.read(0x28, 4) == error
    assert ring.word == good | State.HALTED
    assert pair.a.dma_bus.take_interrupts() == [0]
    ring.write(0x28, 4, error)
    assert ring.read(0x28, 4) == 0
    ring.write(0x10, 4, ring.base)
    ring.posted = 0
    ring.post(buffer, buffer + 8, 8)
    ring.ring()
    assert ring.state == State.IDLE


def test_a_chain_that_points_nowhere(pair: Pair, ring: Ring) -> None:
    ring.write(0x10, 4, 0x70000000)
    ring.write(0x06, 2, 1)
    assert ring.state == State.HALTED and ring.read(0x28, 4) == ChannelError.NEXT_ADDRESS


def test_a_chain_that_loops_ends_with_its_count(pair: Pair, ring: Ring) -> None:
    entry = DESCRIPTOR.pack(null=1, size=1, next=ring.base)
    pair.a.bus.poke(ring.base, entry)
    ring.write(0x06, 2, 0xFFFF)
    pair.a.dma_bus.run()
    assert ring.state == State.IDLE


def test_a_completion_word_in_a_register_halts(pair: Pair, ring: Ring) -> None:
    ring.write(0x18, 4, ENGINE)
    ring.post(0, 0, 1, null=1)
    ring.ring()
    assert ring.state == State.HALTED
    assert ring.read(0x28, 4) == ChannelError.COMPLETION_ADDRESS
    assert pair.a.dma_bus.take_interrupts() == []


def test_suspend_resume_and_reset(pair: Pair, ring: Ring) -> None:
    ring.write(0x04, 1, ChannelCommand.SUSPEND)
    assert ring.state == State.SUSPENDED
    ring.post(0, 0, 1, null=1)
    ring.ring()
    assert ring.state == State.SUSPENDED
    ring.write(0x04, 1, ChannelCommand.RESUME)
    assert ring.state == State.IDLE and ring.word
    ring.write(0x04, 1, ChannelCommand.RESET)
    assert ring.state == State.HALTED and ring.read(0x04, 1) == 0 and ring.read(0x10, 4) == 0
