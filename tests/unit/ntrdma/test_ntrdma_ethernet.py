"""NTRDMA's Ethernet device: two engines in one process, and a peer that lies to it."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.ntrdma import work as layout
from bluebridge.device.layout.ntrdma.port import BELL_ETHERNET, ETHERNET_CAPACITY, PEER_INFO
from bluebridge.guest.ntrdma.engine.ethernet import BUFFER, LENGTH, Ethernet
from tests.unit.ntrdma.test_ntrdma_hostile import Liar, meet
from tests.world.ntrdma.side import FRAME_BYTES, FRAME_COUNT, Side
from tests.world.ntrdma.world import settled


def device(side: Side) -> Ethernet:
    """Its Ethernet device."""
    assert side.engine.ethernet is not None
    return side.engine.ethernet


@pytest.mark.parametrize("seed", range(5))
def test_without_trouble_every_frame_arrives(seed: int) -> None:
    """Whatever the delays, in order and once; the rings are lapped."""
    world = settled(seed)
    for _ in range(4000):
        world.step()
    world.settle()
    for here, there in (world.sides, world.sides[::-1]):
        assert here.frames.sent == there.frames.received > 2 * FRAME_COUNT
        assert device(here).sender.dropped == device(there).receiver.dropped == 0


def test_rings_of_full_laps() -> None:
    """More frames than the rings' indices count before they begin anew."""
    world = settled(3)
    a, b = world.sides
    for _ in range(ETHERNET_CAPACITY):
        assert a.frames.post(device(a), 3) == 3
        a.engine.run(world.now)
        world.settle()
    assert b.frames.received == 3 * ETHERNET_CAPACITY


def test_the_peers_buffers_bound_what_is_under_way() -> None:
    """Sending stops when they are used up, and goes on when there are more."""
    world = settled(4)
    a, b = world.sides
    free = FRAME_COUNT - a.frames.post(device(a), 100)
    assert 0 <= free < FRAME_COUNT // 4, "buffers are given when a quarter of them is empty"
    assert not device(a).wants_frames and device(a).sender.stopped
    a.engine.run(world.now)
    world.settle()
    assert b.frames.received == FRAME_COUNT - free
    assert device(a).wants_frames


def test_a_burst_costs_four_stores_more_than_it_has_frames() -> None:
    """Frames, lengths, index, bell, interrupt."""
    world = settled(5)
    a, b = world.sides
    for count in (1, 3, 5):
        before = a.transport.posted
        assert a.frames.post(device(a), count) == count
        a.engine.run(world.now)
        assert a.transport.posted - before == count + 4
        a.land()
        assert b.machine.interrupts == 1
        world.settle()


def test_the_carrier_follows_the_peer() -> None:
    world = settled(6)
    survivor = world.sides[1]
    assert survivor.frames.carrier == [True]
    world.die(0)
    world.settle()
    assert survivor.frames.carrier == [True, False, True]
    assert survivor.frames.post(device(survivor), 1) == 1


def test_a_frame_too_long_for_the_buffer_is_dropped_and_counted() -> None:
    """Both sides count it, and its buffer stays in turn."""
    world = settled(7)
    a, b = world.sides
    sender = device(a).sender
    for _ in range(2 * FRAME_COUNT):
        address, _ = BUFFER.unpack(sender.buffers.entry(sender.used))
        sender.buffers.put(sender.used, BUFFER.pack(address, 20))
        assert device(a).space() is not None
        device(a).send(21)
        a.engine.run(world.now)
        world.settle()
    assert (sender.frames, sender.dropped) == (0, 2 * FRAME_COUNT)
    receiver = device(b).receiver
    assert (receiver.frames, receiver.dropped) == (0, 2 * FRAME_COUNT)
    a.frames.post(device(a), 1)
    a.engine.run(world.now)
    world.settle()
    assert b.frames.received == 1


def test_a_side_without_the_device_keeps_its_peer() -> None:
    """All fields of its blocks are 0, and so it is with a peer that has switched it off."""
    world = settled(8)
    side = world.sides[0]
    block = bytearray(side.engine.port.block)
    for name in ("capacity", "completions", "consumed", "bell", "buffers", "produced", "send_bell"):
        PEER_INFO.set(block, f"ethernet_{name}", 0xFFFF if "bell" in name else 0)
    assert side.engine.peer.take_init(bytes(block)) and side.engine.peer.take_conf(bytes(block))
    assert not device(side).ready and device(side).space() is None


BLOCKS = [
    ("ethernet_capacity", 0x200),
    ("ethernet_index", 0x800),
    ("ethernet_completions", (1 << 64) - 8),
    ("ethernet_completions", 1),
    ("ethernet_consumed", 2),
    ("ethernet_bell", 0x400),
    ("ethernet_buffers", 1 << 60),
    ("ethernet_produced", 3),
    ("ethernet_send_bell", 0xFFFFFFFF),
]


@pytest.mark.parametrize(("name", "value"), BLOCKS)
def test_a_block_that_makes_no_sense_is_refused(name: str, value: int) -> None:
    world = settled(1)
    peer = world.sides[1].engine.peer
    block = bytearray(world.sides[1].engine.port.block)
    assert peer.take_init(bytes(block)) and peer.take_conf(bytes(block))
    PEER_INFO.set(block, name, value)
    assert not (peer.take_init(bytes(block)) and peer.take_conf(bytes(block)))


def test_formats_are_those_of_the_tables() -> None:
    entry = BUFFER.pack(1 << 40, FRAME_BYTES)
    found = [layout.FRAME_BUFFER.get(entry, name) for name in ("address", "length")]
    assert found == [1 << 40, FRAME_BYTES]
    assert layout.FRAME_COMPLETION.get(LENGTH.pack(99), "length") == 99
    sizes = layout.FRAME_BUFFER.size, layout.FRAME_COMPLETION.size
    assert (BUFFER.size, LENGTH.size) == sizes


class FrameLiar(Liar):
    """One that stores what it likes into the Ethernet rings of side 1."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.frames: list[int] = []
        """Lengths of what the victim's interface got."""
        self.victim.frames.receive = (  # type: ignore[method-assign]
            lambda frame: self.frames.append(len(frame))
        )

    def tell_all(self) -> None:
        """Ring, signal, and let the victim look."""
        self.tell(BELL_ETHERNET)
        self.victim.engine.advance(self.world.now)
        self.victim.land()

    def lie_in_buffers(self) -> None:
        """Addresses and lengths of all kinds, and indices."""
        sender = device(self.victim).sender
        base = self.world.machines[0].base
        for _ in range(3):
            wild = self.chance.getrandbits(self.chance.choice((20, 40, 64)))
            address = self.chance.choice((wild, base + (wild & 0xFFFF), (1 << 64) - 1))
            length = self.chance.choice((0, 1, 120, 1 << 40, (1 << 64) - 1))
            at = self.chance.randrange(ETHERNET_CAPACITY)
            sender.buffers.put(at, BUFFER.pack(address, length))
        ahead = self.number(0, 1, 1, 5, ETHERNET_CAPACITY)
        sender.produced.set((sender.used + ahead) % (2 * ETHERNET_CAPACITY + 7))
        self.tell_all()
        self.victim.frames.post(device(self.victim), 5)
        self.tell_all()

    def lie_in_lengths(self) -> None:
        """Frames that are longer than their buffers, shorter than a header, or never were."""
        receiver = device(self.victim).receiver
        for ahead in range(4):
            length = self.number(14, 60, 119, 120, 121, (1 << 64) - 1)
            receiver.lengths.put(receiver.taken + ahead, LENGTH.pack(length))
        receiver.consumed.set(
            (receiver.taken + self.number(0, 1, 2, 4, FRAME_COUNT)) % (2 * ETHERNET_CAPACITY + 7)
        )
        self.tell_all()


@pytest.mark.parametrize("seed", range(60))
def test_a_liar_gets_nothing_and_the_next_peer_is_served(seed: int) -> None:
    """No copy to where the peer has nothing, no frame beyond its buffer; nothing else changes."""
    liar = FrameLiar(seed)
    for _ in range(60):
        liar.chance.choice((liar.lie_in_buffers, liar.lie_in_lengths))()
        assert liar.victim.guards_hold()
        if not liar.victim.engine.ready:
            break
    assert all(14 <= length <= FRAME_BYTES for length in liar.frames)
    liar.world.die(0)
    assert meet(liar.world)
    assert device(liar.victim).ready


@pytest.mark.parametrize(
    ("which", "ahead"),
    [
        ("frames", FRAME_COUNT + 1),
        ("frames", 5000),
        ("buffers", ETHERNET_CAPACITY + 1),
        ("buffers", 5000),
    ],
)
def test_an_index_that_cannot_be_ends_it_with_the_peer(which: str, ahead: int) -> None:
    world = settled(2)
    victim = world.sides[1]
    ring = device(victim)
    if which == "frames":
        ring.receiver.consumed.set(ring.receiver.taken + ahead)
    else:
        victim.frames.post(ring, 100)
        ring.sender.produced.set(ring.sender.used + ahead)
        victim.frames.post(ring, 1)
    bells = victim.engine.bells.words
    bells[BELL_ETHERNET] += 1
    victim.engine.interrupt(world.now)
    victim.engine.run(world.now)
    assert not victim.engine.ready
    assert f"index of Ethernet {which} cannot be" in victim.engine.port.reason
