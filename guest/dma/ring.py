"""A channel's descriptors: a ring in memory that links to itself."""

from __future__ import annotations

import struct

from bluebridge.device.layout.ioat.descriptor import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.guest.bus.interface import DmaMemory

_ENTRY = struct.Struct("<I4sQQ")
"""Size, flags, source and destination: what differs from copy to copy."""


def _flags(interrupt: int, fence: int) -> bytes:
    word = DESCRIPTOR.field("interrupt")
    entry = DESCRIPTOR.pack(completion_write=1, interrupt=interrupt, fence=fence)
    return bytes(entry[word.offset : word.offset + word.width])


_FLAGS = {
    (interrupt, fence): _flags(interrupt, fence)
    for interrupt in (False, True)
    for fence in (False, True)
}


class Ring:
    """`entries` descriptors, a power of two; tickets count all that were ever put there.

    One entry stays free, so that a completion's address tells how many are done.
    """

    def __init__(self, memory: DmaMemory, entries: int) -> None:
        self.entries = entries
        self.posted = 0
        self.done = 0
        self._memory = memory
        self._view = memory.view
        for slot in range(entries):
            following = memory.address + (slot + 1) % entries * DESCRIPTOR_SIZE
            DESCRIPTOR.set(memory.view, "next", following, slot * DESCRIPTOR_SIZE)

    @property
    def address(self) -> int:
        """Bus address of the first descriptor."""
        return self._memory.address

    @property
    def room(self) -> int:
        """How many descriptors may be put."""
        return self.entries - 1 - (self.posted - self.done)

    def put(
        self, source: int, target: int, size: int, *, interrupt: bool, fence: bool = False
    ) -> int:
        """One copy, behind all before it with `fence`; its ticket. Only with `room`."""
        slot = self.posted % self.entries * DESCRIPTOR_SIZE
        _ENTRY.pack_into(self._view, slot, size, _FLAGS[interrupt, fence], source, target)
        self.posted += 1
        return self.posted

    def complete(self, address: int) -> None:
        """The descriptor at `address` is done, and so are those before it."""
        slot = (address - self.address) // DESCRIPTOR_SIZE
        self.done += (slot + 1 - self.done) % self.entries

    def describe(self, ticket: int) -> str:
        """The copy of a ticket that is still in the ring."""
        slot = (ticket - 1) % self.entries * DESCRIPTOR_SIZE
        entry = self._memory.view[slot : slot + DESCRIPTOR_SIZE]
        source, target, size = (
            DESCRIPTOR.get(entry, name) for name in ("source", "destination", "size")
        )
        return f"{size} bytes from {source:#x} to {target:#x}"

    def free(self) -> None:
        """Give the memory back."""
        self._memory.free()
