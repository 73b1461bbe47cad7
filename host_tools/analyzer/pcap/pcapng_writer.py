"""Writes pcapng files, with the parts of the format that a capture needs.

draft-ietf-opsawg-pcapng specifies the format.
"""

from __future__ import annotations

from struct import pack
from typing import BinaryIO

from bluebridge.device.packets.carriers import LINKTYPE_ERF, Frame

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER = 0x1A2B3C4D
NANOSECONDS = 9
"""Resolution of time stamps as a negative power of ten."""

_ERF_SIZE = 16
_ERF_INFINIBAND = 21
_ERF_VARYING = 4  # the record is as long as the packet

_COMMENT, _NAME, _RESOLUTION, _APPLICATION = 1, 2, 9, 4


class PcapngWriter:
    """Writes frames to `file`; interfaces are described when they first appear."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._interfaces: dict[tuple[str, int], int] = {}
        body = pack("<IHHq", BYTE_ORDER, 1, 0, -1)
        self._block(SECTION, body + _options((_APPLICATION, b"bluebridge")))

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
        comment = _options((_COMMENT, frame.comment.encode())) if frame.comment else b""
        self._block(PACKET, head + _padded(data) + comment)

    def _number(self, interface: str, link: int) -> int:
        known = self._interfaces.get((interface, link))
        if known is not None:
            return known
        options = _options((_NAME, interface.encode()), (_RESOLUTION, bytes((NANOSECONDS,))))
        self._block(INTERFACE, pack("<HHI", link, 0, 0) + options)  # 0: no limit to a frame
        number = len(self._interfaces)
        self._interfaces[interface, link] = number
        return number

    def _block(self, kind: int, body: bytes) -> None:
        size = len(body) + 12
        self._file.write(pack("<II", kind, size) + body + pack("<I", size))


def _erf_header(time_ns: int, captured: int, length: int) -> bytes:
    """Return the header of an ERF record: time stamp, type and sizes."""
    seconds, rest = divmod(time_ns, 10**9)
    stamp = pack("<Q", (seconds & 0xFFFFFFFF) << 32 | (rest << 32) // 10**9)
    return stamp + pack(">BBHHH", _ERF_INFINIBAND, _ERF_VARYING, _ERF_SIZE + captured, 0, length)


def _options(*options: tuple[int, bytes]) -> bytes:
    listed = b"".join(pack("<HH", code, len(value)) + _padded(value) for code, value in options)
    return listed + bytes(4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 3)
