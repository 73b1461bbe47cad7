"""The reading of send queue entries of Ethernet, from bytes fetched once.

Layouts: `device.layout.mlx5.wqe`; the formats here are those tables, compiled for the hot path.
Linux `core/en_tx.c: mlx5e_sq_xmit_wqe`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.frames.sending import IP_CHECKSUM, L4_CHECKSUM
from bluebridge.device.layout.mlx5.wqe import (
    CQE_REQUEST,
    CTRL,
    ETHERNET,
    INLINE,
    INLINE_HEADER_MASK,
    INLINE_HEADER_START,
    INSERT_VLAN,
    SEGMENT_BYTES,
    SERVICE_VLAN,
    EthernetFlag,
    SendOpcode,
)
from bluebridge.device.layout.net.ethernet import ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN
from bluebridge.device.rdma.vocabulary import LARGE_SEND, NOP, SEND
from bluebridge.device.rdma.work import FrameWork, WorkError
from bluebridge.device.rings.receive_ring import LENGTH_MASK, SEGMENT

CONTROL: Final = Struct(">II3xBI")
ETHERNET_SEGMENT: Final = Struct(">4xBxH4xHH")
MOST_INLINE: Final = 1024

_OPCODE_MASK: Final = 0xFF
_CQE_REQUEST: Final = int(CQE_REQUEST)
_INLINE_LENGTH: Final = 4
_INLINE_AT: Final = CTRL.size + 0x0E
_SEGMENTS_AT: Final = CTRL.size + ETHERNET.size
_L3: Final = int(EthernetFlag.L3)
_L4: Final = int(EthernetFlag.L4)
_OPERATIONS: Final = {
    int(SendOpcode.NOP): NOP,
    int(SendOpcode.SEND): SEND,
    int(SendOpcode.LSO): LARGE_SEND,
}


def read_frame(raw: bytes, index: int) -> FrameWork:
    """Return the work request of an entry; raises `WorkError` for garbage."""
    if len(raw) < CONTROL.size:
        raise WorkError(f"an entry of {len(raw)} bytes")
    word0, _, flags, _ = CONTROL.unpack_from(raw)
    operation = _OPERATIONS.get(word0 & _OPCODE_MASK)
    if operation is None:
        raise WorkError(f"opcode {word0 & _OPCODE_MASK:#x}")
    work = FrameWork(index, operation)
    work.signalled = flags & _CQE_REQUEST != 0
    if operation == NOP:
        return work
    if len(raw) < _SEGMENTS_AT:
        raise WorkError("no Ethernet segment")
    wanted, mss, kind, tag = ETHERNET_SEGMENT.unpack_from(raw, CTRL.size)
    position = _SEGMENTS_AT
    header = b""
    if kind & INSERT_VLAN:
        work.tag_type = ETHERTYPE_SERVICE_VLAN if kind & SERVICE_VLAN else ETHERTYPE_VLAN
        work.tag = tag
    elif size := kind & INLINE_HEADER_MASK:
        header = raw[_INLINE_AT : _INLINE_AT + size]
        if len(header) < size:
            raise WorkError(f"{size} bytes of headers in an entry of {len(raw)}")
        beyond = max(0, size - INLINE_HEADER_START)
        position += -(-beyond // SEGMENT_BYTES) * SEGMENT_BYTES
    if operation == LARGE_SEND:
        if not mss or not header:
            raise WorkError(f"a large send of {mss} bytes in each frame, {len(header)} of headers")
        work.mss, work.header, work.cuts_udp = mss, header, True
    else:
        work.checksums = (IP_CHECKSUM if wanted & _L3 else 0) | (L4_CHECKSUM if wanted & _L4 else 0)
        if header:
            work.parts.append(header)
            work.length = len(header)
    _read_data(work, raw, position)
    return work


def _read_data(work: FrameWork, raw: bytes, position: int) -> None:
    """Append the data segments of an entry from `position` on; raises `WorkError`."""
    end, total = len(raw), work.length
    while position + SEGMENT_BYTES <= end:
        length, lkey, address = SEGMENT.unpack_from(raw, position)
        if length & INLINE:
            size = length & LENGTH_MASK
            data = raw[position + _INLINE_LENGTH : position + _INLINE_LENGTH + size]
            if size > MOST_INLINE or len(data) < size:
                raise WorkError(f"{size} bytes inline in an entry of {end}")
            work.parts.append(data)
            total += size
            position += -(-(_INLINE_LENGTH + size) // SEGMENT_BYTES) * SEGMENT_BYTES
            continue
        if length:
            work.parts.append((lkey, address, length))
            total += length
        position += SEGMENT_BYTES
    work.length = total
