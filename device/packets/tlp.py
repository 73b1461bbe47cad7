"""Transaction layer packets of PCI Express: headers and data of one request or completion.

Requests must not be longer than 4096 bytes nor cross a multiple of 4096. Bytes that are not
enabled, in front of data and behind it, are zeros.
"""

from __future__ import annotations

from struct import pack
from typing import Final

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.pcie import (
    COMPLETION,
    CONFIG,
    LIMIT_32,
    MAX_BYTES,
    MAX_DWORDS,
    MEMORY_32,
    MEMORY_64,
    TAG_DISSECTOR_NAME,
    TAG_END,
    TlpType,
)

_FMT_SHIFT: Final = 5
_TYPE_MASK: Final = 0x1F
_LOWER_ADDRESS: Final = 0x7F
_ALL: Final = 0xF


class Packer:
    """A packer for a big-endian `Struct` without raw fields; all values must fit their fields."""

    def __init__(self, struct: Struct) -> None:
        if struct.order != "big" or any(item.raw for item in struct):
            raise ValueError(f"{struct.name} is not made of big-endian integers only")
        self.size: Final = struct.size
        self._shifts: Final = {
            item.name: 8 * (struct.size - item.offset - item.width) + item.low for item in struct
        }

    def pack(self, **values: int) -> bytes:
        """Return the bytes of the structure with these fields, and zeros elsewhere."""
        shifts, word = self._shifts, 0
        for name, value in values.items():
            word |= value << shifts[name]
        return word.to_bytes(self.size, "big")


_MEMORY_32: Final = Packer(MEMORY_32)
_MEMORY_64: Final = Packer(MEMORY_64)
_CONFIG: Final = Packer(CONFIG)
_COMPLETION: Final = Packer(COMPLETION)


def memory_read(address: int, length: int, requester: int, tag: int) -> bytes:
    """Return a memory read request for `length` bytes at `address`."""
    return _memory(TlpType.MEMORY_READ_32, TlpType.MEMORY_READ_64, address, length, requester, tag)


def memory_write(address: int, length: int, requester: int) -> bytes:
    """Return the header of a memory write; the data that follow it come from `payload`."""
    return _memory(TlpType.MEMORY_WRITE_32, TlpType.MEMORY_WRITE_64, address, length, requester, 0)


def config(kind: TlpType, offset: int, length: int, target: int, tag: int) -> bytes:
    """Return the header of a config request of type 0 in one dword, from the root (id 0)."""
    return _CONFIG.pack(
        fmt=kind >> _FMT_SHIFT,
        type=kind & _TYPE_MASK,
        length=1,
        tag=tag,
        first_enables=enables(offset, length)[0],
        target=target,
        register=offset & ~3,
    )


def completion(
    length: int, address: int, remaining: int, completer: int, requester: int, tag: int
) -> bytes:
    """Return the header of a completion with `length` bytes from `address` on.

    `remaining` bytes are still to come, these included.
    """
    return _completion(
        TlpType.COMPLETION_DATA,
        dwords(address, length),
        address & _LOWER_ADDRESS,
        remaining,
        (completer, requester, tag),
    )


def config_completion(*, data: bool, completer: int, tag: int) -> bytes:
    """Return the header of an answer to a config request: byte count 4, lower address 0 (2.2.9)."""
    kind = TlpType.COMPLETION_DATA if data else TlpType.COMPLETION
    return _completion(kind, int(data), 0, 4, (completer, 0, tag))


def payload(address: int, data: bytes, length: int) -> bytes:
    """Return the data of a TLP of `length` bytes, of which `data` are known, within dwords."""
    lead = bytes(address % 4)
    if len(data) < length:
        return lead + data
    return (lead + data).ljust(4 * dwords(address, length), b"\0")


def dwords(address: int, length: int) -> int:
    """Return the number of dwords that hold `length` bytes at `address`; 1 for none."""
    return (address % 4 + length + 3) // 4 or 1


def enables(address: int, length: int) -> tuple[int, int]:
    """Return first and last byte enables of `length` bytes at `address` (2.2.5)."""
    if not length:
        return 0, 0
    start, end = address % 4, address % 4 + length
    if end <= 4:
        return _ALL << start & _ALL >> (4 - end), 0
    return _ALL << start & _ALL, _ALL >> (-end & 3)


def _memory(
    below: TlpType, above: TlpType, address: int, length: int, requester: int, tag: int
) -> bytes:
    small = address < LIMIT_32
    kind, packer = (below, _MEMORY_32) if small else (above, _MEMORY_64)
    first, last = enables(address, length)
    return packer.pack(
        fmt=kind >> _FMT_SHIFT,
        type=kind & _TYPE_MASK,
        length=dwords(address, length) % MAX_DWORDS,
        requester=requester,
        tag=tag,
        first_enables=first,
        last_enables=last,
        address=address & ~3,
    )


def _completion(
    kind: TlpType, length: int, lower: int, remaining: int, ids: tuple[int, int, int]
) -> bytes:
    completer, requester, tag = ids
    return _COMPLETION.pack(
        fmt=kind >> _FMT_SHIFT,
        type=kind & _TYPE_MASK,
        length=length % MAX_DWORDS,
        completer=completer,
        byte_count=remaining % MAX_BYTES,
        requester=requester,
        tag=tag,
        lower_address=lower,
    )


def tags(dissector: str) -> bytes:
    """Return the tags in front of data that `dissector` is to decode."""
    return _tag(TAG_DISSECTOR_NAME, dissector.encode()) + _tag(TAG_END, b"")


def _tag(number: int, value: bytes) -> bytes:
    value += bytes(-len(value) & 3)
    return pack(">HH", number, len(value)) + value
