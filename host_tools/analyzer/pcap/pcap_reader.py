"""Reads captures of either format: pcapng, and the older pcap that tcpdump writes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO, Final

from bluebridge.device.buslog.reader import LogError
from bluebridge.host_tools.analyzer.pcap.pcapng_reader import MOST, Packet, packets

_MAGIC: Final = {
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
"""Byte order, and ns of a unit of time, by the first bytes of a pcap file."""
_HEADER_REST: Final = 20


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
        data = file.read(min(kept, MOST))
        if len(data) != kept:
            raise _damaged()
        yield Packet("", link, seconds * 10**9 + parts * unit, data, length)


def _damaged() -> LogError:
    return LogError("the capture is damaged: write it again")
