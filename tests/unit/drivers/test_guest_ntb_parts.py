"""The parts of the bridge's and the engine's driver that need no device."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.ioat import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.guest.bus.dma_memory import Arena
from bluebridge.guest.bus.interface import accesses, load_bytes, store_bytes
from bluebridge.guest.bus.vectors import Vectors
from bluebridge.guest.drivers.dma.channel import Ring
from bluebridge.guest.drivers.ntb import LinkState
from bluebridge.guest.errors import DeviceError

BASE = 0x10_0000
ENTRIES = 8


class Memory:
    """Registers that are bytes, and refuse what no bus can do."""

    def __init__(self) -> None:
        self.data = bytearray(256)

    def load(self, offset: int, width: int) -> int:
        assert width in (1, 2, 4, 8) and not offset % width
        return int.from_bytes(self.data[offset : offset + width], "little")

    def store(self, offset: int, width: int, value: int) -> None:
        assert width in (1, 2, 4, 8) and not offset % width
        self.data[offset : offset + width] = value.to_bytes(width, "little")


@given(st.integers(0, 100), st.binary(min_size=1, max_size=100))
def test_bytes_go_by_the_widest_aligned_accesses(offset: int, data: bytes) -> None:
    memory = Memory()
    store_bytes(memory, offset, data)
    assert load_bytes(memory, offset, len(data)) == data
    assert memory.data == bytes(offset) + data + bytes(256 - offset - len(data))
    parts = list(accesses(offset, len(data)))
    assert sum(width for _, width in parts) == len(data)
    # At most one access of each smaller width on either side of a run of widest ones.
    assert len(parts) <= 6 + len(data) // 8


def _ring() -> tuple[Ring, memoryview]:
    arena = Arena()
    view = memoryview(bytearray(4096))
    arena.add(BASE, view)
    memory = arena.allocate(ENTRIES * DESCRIPTOR_SIZE, 4096)
    assert memory is not None
    return Ring(memory, ENTRIES), view


@given(st.lists(st.tuples(st.integers(0, ENTRIES), st.integers(0, ENTRIES)), max_size=40))
def test_a_ring_counts_through_its_laps(steps: list[tuple[int, int]]) -> None:
    """Put some, complete some: the address of the last one done tells how many are."""
    ring, view = _ring()
    for put, done in steps:
        for _ in range(min(put, ring.room)):
            ticket = ring.put(1, 2, 3, interrupt=False)
            slot = (ticket - 1) % ENTRIES
            entry = view[slot * DESCRIPTOR_SIZE : (slot + 1) * DESCRIPTOR_SIZE]
            following = BASE + (slot + 1) % ENTRIES * DESCRIPTOR_SIZE
            assert DESCRIPTOR.get(entry, "next") == following
            assert DESCRIPTOR.get(entry, "completion_write") == 1
        wanted = min(ring.posted, ring.done + done)
        if wanted:
            ring.complete(BASE + (wanted - 1) % ENTRIES * DESCRIPTOR_SIZE)
        assert ring.done == wanted
        assert 0 <= ring.posted - ring.done < ENTRIES
        assert ring.room == ENTRIES - 1 - (ring.posted - ring.done)


def test_a_ring_tells_of_a_copy() -> None:
    ring, _ = _ring()
    ticket = ring.put(0x1000, 0x2000, 64, interrupt=True)
    assert ring.describe(ticket) == "64 bytes from 0x1000 to 0x2000"


def test_a_link_in_words() -> None:
    assert str(LinkState.of(0x2084)) == "up, 16 GT/s x8"
    assert str(LinkState.of(0x0084)) == "down"
    with pytest.raises(DeviceError, match="gone"):
        LinkState.of(0xFFFF)


def test_vectors_tell_which_have_fired_once() -> None:
    fds = [os.eventfd(0) for _ in range(3)]
    vectors = Vectors(fds)
    assert vectors.wait([0, 1, 2], 0) == []
    for fd in (fds[0], fds[2], fds[2]):
        os.eventfd_write(fd, 1)
    assert vectors.wait([1, 2], 0) == [2]
    assert vectors.wait([0, 1, 2], 0) == [0]
    assert vectors.wait([0, 1, 2], 0) == []
    os.eventfd_write(fds[1], 1)
    vectors.drain([0, 1])
    assert vectors.wait([0, 1, 2], 0) == []
    spin = vectors.spinner([0, 2])
    os.eventfd_write(fds[1], 1)
    assert spin(3) == []
    os.eventfd_write(fds[2], 1)
    assert spin(3) == [2]
    assert spin(3) == []
    for fd in fds:
        os.close(fd)
