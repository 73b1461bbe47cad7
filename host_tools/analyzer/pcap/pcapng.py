"""Reads and writes pcapng files (draft-ietf-opsawg-pcapng), and reads those of tcpdump."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, pack
from typing import BinaryIO, Final

from bluebridge.device.buslog.reader import LogError
from bluebridge.device.packets.carriers import LINKTYPE_ERF, Frame

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER = 0x1A2B3C4D
NANOSECONDS = 9
"""Resolution of time stamps as a negative power of ten."""

_ERF_SIZE = 16
_ERF_INFINIBAND = 21
_ERF_VARYING = 4  # the record is as long as the packet

_COMMENT, _NAME, _RESOLUTION, _APPLICATION, _DROPPED = 1, 2, 9, 4, 4

MOST: Final = 1 << 24
"""Greatest size of a block in bytes, far more than that of any packet."""
_MOST_INTERFACES: Final = 1 << 12
_MOST_NAME: Final = 256

_MICROSECONDS: Final = 6
_POWER_OF_TWO: Final = 0x80

_MAGIC: Final = {
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
"""Byte order, and ns of a unit of time, by the first bytes of a pcap file."""
_HEADER_REST: Final = 20


class PcapngWriter:
    """Writes frames to `file`; interfaces are described when they first appear."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._interfaces: dict[tuple[str, int], int] = {}
        body = pack("<IHHq", BYTE_ORDER, 1, 0, -1)
        self._block(SECTION, body + _packed_options((_APPLICATION, b"bluebridge")))

    def write(self, interface: str, time_ns: int, frame: Frame) -> None:
        """Write a frame that left `interface` at `time_ns` nanoseconds since 1970."""
        data, length = frame.data, frame.length
        if frame.link == LINKTYPE_ERF:
            header = _erf_header(time_ns, len(data), length)
            data, length = header + data, len(header) + length
        number = self._number(interface, frame.link)
        head = pack(
            "<IIIII", number, time_ns >> 32 & 0xFFFFFFFF, time_ns & 0xFFFFFFFF, len(data), length
        )
        comment = _packed_options((_COMMENT, frame.comment.encode())) if frame.comment else b""
        self._block(PACKET, head + _padded(data) + comment)

    def _number(self, interface: str, link: int) -> int:
        known = self._interfaces.get((interface, link))
        if known is not None:
            return known
        options = _packed_options((_NAME, interface.encode()), (_RESOLUTION, bytes((NANOSECONDS,))))
        self._block(INTERFACE, pack("<HHI", link, 0, 0) + options)  # 0: no limit to a frame
        number = len(self._interfaces)
        self._interfaces[interface, link] = number
        return number

    def _block(self, kind: int, body: bytes) -> None:
        size = len(body) + 12
        self._file.write(pack("<II", kind, size) + body + pack("<I", size))


def _erf_header(time_ns: int, captured: int, length: int) -> bytes:
    seconds, rest = divmod(time_ns, 10**9)
    stamp = pack("<Q", (seconds & 0xFFFFFFFF) << 32 | (rest << 32) // 10**9)
    return stamp + pack(">BBHHH", _ERF_INFINIBAND, _ERF_VARYING, _ERF_SIZE + captured, 0, length)


def _packed_options(*options: tuple[int, bytes]) -> bytes:
    listed = b"".join(pack("<HH", code, len(value)) + _padded(value) for code, value in options)
    return listed + bytes(4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 3)


@dataclass(slots=True)
class Packet:
    """A packet: `length` bytes, of which `data` were captured; `time` in ns since 1970.

    `lost` is how many packets in front of it the capture says it lacks.
    """

    interface: str
    link: int
    time: int
    data: bytes
    length: int
    lost: int = 0


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
        if kind == INTERFACE and len(interfaces) < _MOST_INTERFACES:
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
    name = found.get(_NAME, b"")[:_MOST_NAME].decode(errors="replace")
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
    lost = 0
    for code, value in _options(order, body[head.size + kept + (-kept & 3) :]):
        if code == _DROPPED:
            lost = int.from_bytes(value, "little" if order == "<" else "big")
    return Packet(interface.name, interface.link, time, data, length, lost)


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


def captured(file: BinaryIO) -> Iterator[Packet]:
    """Yield the packets of a capture in its order; raises `LogError` when it is damaged."""
    start = file.read(4)
    file.seek(0)
    if start in _MAGIC:
        yield from _pcap(file)
    else:
        yield from packets(file)


def _pcap(file: BinaryIO) -> Iterator[Packet]:
    order, unit = _MAGIC[file.read(4)]
    head = file.read(_HEADER_REST)
    if len(head) < _HEADER_REST:
        raise _damaged()
    link = Struct(order + "I").unpack_from(head, _HEADER_REST - 4)[0] & 0xFFFF
    record = Struct(order + "IIII")
    while head := file.read(record.size):
        if len(head) < record.size:
            raise _damaged()
        seconds, parts, kept, length = record.unpack(head)
        data = file.read(kept) if kept <= MOST else b""
        if len(data) != kept:
            raise _damaged()
        yield Packet("", link, seconds * 10**9 + parts * unit, data, length)
