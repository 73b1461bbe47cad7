"""Reads pcapng files: sections, interfaces, enhanced packets; other blocks are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO, Final

from bluebridge.device.buslog.reader import LogError
from bluebridge.host_tools.analyzer.pcap.pcapng_writer import BYTE_ORDER, INTERFACE, PACKET, SECTION

MOST: Final = 1 << 28
"""Greatest size of a block in bytes, far more than that of any packet."""

_NAME, _RESOLUTION = 2, 9
_MICROSECONDS: Final = 6
_POWER_OF_TWO: Final = 0x80


@dataclass(slots=True)
class Packet:
    """A packet: `length` bytes, of which `data` were captured; `time` in ns since 1970."""

    interface: str
    link: int
    time: int
    data: bytes
    length: int


@dataclass(slots=True)
class _Interface:
    name: str
    link: int
    ticks: int  # in a second


def packets(file: BinaryIO) -> Iterator[Packet]:
    """Yield the packets of a file in its order; raises `LogError` when it is damaged."""
    order, interfaces = "<", list[_Interface]()
    while head := file.read(8):
        kind = int.from_bytes(head[:4], "little")
        if kind == SECTION:  # reads the same in either order
            head += file.read(4)
            order = "<" if head[8:12] == BYTE_ORDER.to_bytes(4, "little") else ">"
            interfaces = []
        words = Struct(order + "II")
        if len(head) < 8:
            raise _damaged()
        kind, size = words.unpack_from(head)
        if size < 12 or size % 4 or size > MOST:
            raise _damaged()
        body = head[8:] + file.read(size - len(head))
        if len(body) != size - 8:
            raise _damaged()
        if kind == INTERFACE:
            interfaces.append(_interface(order, body[:-4]))
        elif kind == PACKET:
            yield _packet(order, body[:-4], interfaces)


def _interface(order: str, body: bytes) -> _Interface:
    if len(body) < 8:
        raise _damaged()
    link = Struct(order + "H").unpack_from(body)[0]
    found = dict(_options(order, body[8:]))
    resolution = (found.get(_RESOLUTION) or bytes((_MICROSECONDS,)))[0]
    base = 2 if resolution & _POWER_OF_TWO else 10
    name = found.get(_NAME, b"").decode(errors="replace")
    return _Interface(name, link, base ** (resolution & ~_POWER_OF_TWO))


def _packet(order: str, body: bytes, interfaces: list[_Interface]) -> Packet:
    head = Struct(order + "IIIII")
    if len(body) < head.size:
        raise _damaged()
    number, high, low, kept, length = head.unpack_from(body)
    data = body[head.size : head.size + kept]
    if number >= len(interfaces) or len(data) != kept:
        raise _damaged()
    interface = interfaces[number]
    time = (high << 32 | low) * 10**9 // interface.ticks
    return Packet(interface.name, interface.link, time, data, length)


def _options(order: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    head, position = Struct(order + "HH"), 0
    while position + head.size <= len(data):
        code, size = head.unpack_from(data, position)
        if not code:
            return
        position += head.size
        yield code, data[position : position + size]
        position += size + (-size & 3)


def _damaged() -> LogError:
    return LogError("the capture is damaged, or no pcapng file: write it again")
