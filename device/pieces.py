"""Lists of pieces of memory: found, copied and logged, all pieces of a message in one call.

In the compiled device `pieces.c` is this module (`bluebridge.compiled`): with the same functions,
whose lists of runs and views are objects of its own, so that a piece is never an object of Python.
Views there refer to the memory that they were found in, and using them after that memory was
unmapped raises ValueError. They are lists to whoever counts, indexes or iterates them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final

Run = tuple[int, int]
"""A range of guest-physical memory: address, length in bytes."""

_TAIL: Final = 8
"""How many bytes of a message are stored on their own, after all others."""
_RUN: Final = Struct("<QII")


def translate(
    starts: array[int], addresses: array[int], mapped: int, offset: int, length: int
) -> Sequence[Run]:
    """Where `length` bytes from `offset` on are, by the pieces of a region.

    Piece i begins at offset `starts[i]` and at address `addresses[i]`; the last ends at `mapped`.
    Raises IndexError for no bytes, and for some that are not inside.
    """
    end = offset + length
    if not starts or not starts[0] <= offset < end <= mapped:
        raise IndexError("a range outside of the region")
    index = bisect_right(starts, offset) - 1
    last = len(starts) - 1
    result: list[Run] = []
    while offset < end:
        limit = min(end, starts[index + 1]) if index < last else end
        result.append((addresses[index] + offset - starts[index], limit - offset))
        offset = limit
        index += 1
    return result


def views(
    starts: list[int], regions: list[memoryview], runs: Sequence[Run]
) -> Sequence[memoryview]:
    """Views of all runs, several of one that crosses regions; `starts` are their addresses, sorted.

    Raises LookupError with the address and the length of what is in no region.
    """
    result = []
    low, high, region = 0, 0, memoryview(b"")
    for address, length in runs:
        while length:
            if not low <= address < high:
                index = bisect_right(starts, address) - 1
                if index < 0 or address >= starts[index] + len(regions[index]):
                    raise LookupError(address, length)
                low, region = starts[index], regions[index]
                high = low + len(region)
            part = min(length, high - address)
            result.append(region[address - low : address - low + part])
            address += part
            length -= part
    return result


def size(given: Sequence[memoryview]) -> int:
    """How many bytes all views have."""
    return sum(view.nbytes for view in given)


def copy(destination: Sequence[memoryview], source: Sequence[memoryview | bytes]) -> int:
    """Copy all of `source` into `destination`, whose boundaries may differ, and count the bytes.

    Ascending, and the last bytes by a store of their own: receivers of an RDMA WRITE poll them,
    and the C library copies long blocks in an order of its liking. Raises `ValueError` before a
    byte moves when the destination is too short.
    """
    origins = [memoryview(each) for each in source]
    total = sum(origin.nbytes for origin in origins)
    room = sum(view.nbytes for view in destination)
    if total > room:
        raise ValueError(f"{total} bytes do not fit in {room}")
    left = total
    targets = iter(destination)
    target, start = memoryview(b""), 0
    for origin in origins:
        offset, length = 0, origin.nbytes
        while offset < length:
            while start == target.nbytes:
                target, start = next(targets), 0
            part = min(length - offset, target.nbytes - start)
            left -= part
            body = part - _TAIL if not left and part > _TAIL else part
            target[start : start + body] = origin[offset : offset + body]
            target[start + body : start + part] = origin[offset + body : offset + part]
            start += part
            offset += part
    return total


def pack(
    runs: Sequence[Run],
    given: Sequence[memoryview],
    count: int,
    most: int,
    before: bytes,
    after: bytes,
) -> bytes:
    """The first `count` runs with their first bytes, at most `most`; `given` are views of all runs.

    Each is `before`, its address in 8 bytes, its length and how many bytes are kept of it in 4
    each, `after`, and those bytes.
    """
    result = bytearray()
    rest = iter(given)
    for address, length in runs[:count]:
        data, left = b"", length
        while left > 0:
            view = next(rest)
            data += view[: min(left, most - len(data))]
            left -= view.nbytes
        result += before + _RUN.pack(address, length, len(data)) + after + data
    return bytes(result)
