"""A PCI configuration space: bytes, a mask of writable bits, a list of capabilities."""

from __future__ import annotations

import struct
from typing import Final

_COMMAND: Final = 0x04
_STATUS: Final = 0x06
_CAPABILITY_LIST: Final = 0x10  # bit of the status register
_CAPABILITY_POINTER: Final = 0x34
_FIRST_CAPABILITY: Final = 0x40


class ConfigSpace:
    """Bytes with a mask of the bits that the guest may change; other writes are ignored.

    `data` is the space itself, `writable` the mask. Guests and QEMU regularly write read-only
    registers (saved headers are restored whole after a reset), which must not fail.
    """

    def __init__(self, size: int = 256) -> None:
        self.data = bytearray(size)
        self.writable = bytearray(size)
        self._next = _FIRST_CAPABILITY
        self._last_link = _CAPABILITY_POINTER
        self.set(_COMMAND, "<H", 0, writable=0x0547)
        self.set(0x0C, "<B", 0, writable=0xFF)  # cache line size
        self.set(0x3C, "<B", 0, writable=0xFF)  # interrupt line

    def set(self, offset: int, form: str, value: int, writable: int = 0) -> None:
        """Store a register of struct format `form` and the bits of it that software may change."""
        struct.pack_into(form, self.data, offset, value)
        struct.pack_into(form, self.writable, offset, writable)

    def set_identity(
        self, vendor: int, device: int, class_code: int, revision: int = 0, pin: int = 0
    ) -> None:
        """Set vendor, device, class code (24 bits), revision and interrupt pin (1 = INTA#).

        The subsystem gets the same vendor and device.
        """
        self.set(0x00, "<H", vendor)
        self.set(0x02, "<H", device)
        self.set(0x08, "<I", class_code << 8 | revision)
        self.set(0x2C, "<H", vendor)
        self.set(0x2E, "<H", device)
        self.set(0x3D, "<B", pin)

    def set_bar(self, index: int, size: int, low_bits: int = 0) -> None:
        """Set a BAR of `size` bytes, a power of two.

        `low_bits` are its type; 0 is 32-bit memory.
        """
        self.set(0x10 + 4 * index, "<I", low_bits, writable=-size & 0xFFFFFFF0)

    def add_capability(self, body: bytes, writable: bytes = b"", at: int = 0) -> int:
        """Append a capability, at offset `at` or behind the last one, and return its offset.

        `body` is its ID, a byte for the link, then its registers. `writable` masks the same bytes;
        those that it does not cover are read-only.
        """
        offset = at or self._next
        end = offset + len(body)
        if end > 256:
            raise ValueError("no room for another capability")
        self.data[offset:end] = body
        self.data[offset + 1] = 0
        self.writable[offset : offset + len(writable)] = writable
        self.data[self._last_link] = offset
        self.data[_STATUS] |= _CAPABILITY_LIST
        self._last_link = offset + 1
        self._next = (end + 3) & ~3
        return offset

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes; a callback for `Context.add_region(Region.CONFIG, …)`."""
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes; a callback for `Context.add_region(Region.CONFIG, …)`."""
        for position, value in enumerate(data, offset):
            mask = self.writable[position]
            self.data[position] = self.data[position] & ~mask | value & mask
