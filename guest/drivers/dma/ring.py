"""The descriptors of a channel: a ring in memory whose entries link to the next."""

from __future__ import annotations

import struct

from bluebridge.device.layout.ioat.descriptor import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.guest.drivers.bus.interface import DmaMemory

_ENTRY = struct.Struct("<IIQQ")
"""The fields of a descriptor that differ from copy to copy: size, flags, source, destination."""


_COMPLETION_WRITE = 1 << DESCRIPTOR.field("completion_write").low
_INTERRUPT = 1 << DESCRIPTOR.field("interrupt").low
_FENCE = 1 << DESCRIPTOR.field("fence").low


class Ring:
    """`entries` descriptors, a power of two; tickets count all that were ever put there.

    One entry stays free, so that the address of a completion tells how many are done.
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
        """The bus address of the first descriptor."""
        return self._memory.address

    @property
    def room(self) -> int:
        """The number of descriptors that may be put now."""
        return self.entries - 1 - (self.posted - self.done)

    def put(
        self, source: int, target: int, size: int, *, interrupt: bool, fence: bool = False
    ) -> int:
        """Put one copy into the ring, which must have room, and return its ticket.

        With `fence` the copy begins after all those before it.
        """
        slot = self.posted % self.entries * DESCRIPTOR_SIZE
        flags = _COMPLETION_WRITE
        if interrupt:
            flags |= _INTERRUPT
        if fence:
            flags |= _FENCE
        _ENTRY.pack_into(self._view, slot, size, flags, source, target)
        self.posted += 1
        return self.posted

    def complete(self, address: int) -> None:
        """Note that the descriptor at `address` and all before it are done."""
        slot = (address - self.address) // DESCRIPTOR_SIZE
        self.done += (slot + 1 - self.done) % self.entries

    def describe(self, ticket: int) -> str:
        """Return the copy of a ticket that is still in the ring as text for messages."""
        slot = (ticket - 1) % self.entries * DESCRIPTOR_SIZE
        entry = self._memory.view[slot : slot + DESCRIPTOR_SIZE]
        source, target, size = (
            DESCRIPTOR.get(entry, name) for name in ("source", "destination", "size")
        )
        return f"{size} bytes from {source:#x} to {target:#x}"

    def free(self) -> None:
        """Free the ring's memory."""
        self._memory.free()
