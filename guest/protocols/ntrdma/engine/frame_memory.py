"""Memory for frames, and the two formats of the rings that tell of them."""

from __future__ import annotations

import struct

from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

BUFFER = struct.Struct("<QQ")
"""The form of an empty buffer, FRAME_BUFFER: address, length."""
LENGTH = struct.Struct("<Q")
"""The form of a frame's completion, FRAME_COMPLETION."""
SMALLEST_FRAME = 14
"""The least length of a frame: the header of Ethernet."""
_LINE = 64
_PIECE_BYTES = 1 << 20
"""The size of a piece of memory: large contiguous memory is scarce."""


class FrameMemory:
    """`count` pieces of memory, each for a frame of `size` bytes; raises `MemoryError`."""

    def __init__(self, transport: Transport, size: int, count: int) -> None:
        self.size = size
        self.count = count
        stride = -(-size // _LINE) * _LINE
        self.addresses: list[int] = []
        self.views: list[memoryview] = []
        together = max(1, _PIECE_BYTES // stride)
        while len(self.views) < count:
            pieces = min(together, count - len(self.views))
            memory = transport.map(pieces * stride, _LINE)
            for start in range(0, pieces * stride, stride):
                self.addresses.append(memory.address + start)
                self.views.append(memory.view[start : start + size])
