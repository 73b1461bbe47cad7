"""Work queue entries: receives, and sends without the first dword, which makes them valid.

ib/qp.c: _mlx4_ib_post_send. A function of type `Segments` writes what follows the control segment
and returns where the next segment goes. What is sent most is packed in one step with the control
segment: each call of the standard library takes a microsecond in an emulated guest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from bluebridge.device.layout.mlx4.wqe import FastRegFlag, SendOpcode
from bluebridge.guest.drivers.common.shared_receives import DATA
from bluebridge.guest.drivers.hca.resources.memory_regions import FastRegMr
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags, WrOpcode
from bluebridge.guest.verbs.values import RoceAddress, SendWr

OPCODES: dict[int, SendOpcode] = {
    WrOpcode.RDMA_WRITE: SendOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM: SendOpcode.RDMA_WRITE_IMM,
    WrOpcode.SEND: SendOpcode.SEND,
    WrOpcode.SEND_WITH_IMM: SendOpcode.SEND_IMM,
    WrOpcode.SEND_WITH_INV: SendOpcode.SEND_INVAL,
    WrOpcode.RDMA_READ: SendOpcode.RDMA_READ,
    WrOpcode.ATOMIC_CMP_AND_SWP: SendOpcode.ATOMIC_CS,
    WrOpcode.ATOMIC_FETCH_AND_ADD: SendOpcode.ATOMIC_FA,
    WrOpcode.MASKED_ATOMIC_CMP_AND_SWP: SendOpcode.MASKED_ATOMIC_CS,
    WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD: SendOpcode.MASKED_ATOMIC_FA,
    WrOpcode.LOCAL_INV: SendOpcode.LOCAL_INVAL,
    WrOpcode.REG_MR: SendOpcode.FAST_REG_MR,
    WrOpcode.NOP: SendOpcode.NOP,
}

INLINE_BIT: Final = 0x80000000
_WORD = struct.Struct(">I")
REMOTE = struct.Struct(">QI4x")
PAIR = struct.Struct(">QQ")
FOUR = struct.Struct(">QQQQ")
LOCAL_INV = struct.Struct(">8xI20x")
FAST_REG = struct.Struct(">IIQQQII8x")
_PAGE = struct.Struct(">Q")
DATAGRAM = struct.Struct(">IBBHxBBBI16sIIH6s")
_NO_VLAN = 0xFFFF
_PORT_SHIFT = 24

CONTROL = struct.Struct(">III")
SEND_ENTRY = struct.Struct(">IIIIIQ")
RDMA_ENTRY = struct.Struct(">IIIQI4xIIQ")
RDMA_INLINE_ENTRY = struct.Struct(">IIIQI4xI28s")
_FIRST_INLINE: Final = 28
"""The number of inline bytes of an RDMA WRITE that fit into the first 64 bytes of its entry."""

Payload = bytes | bytearray | memoryview
Segments = Callable[[SendWr, memoryview, int], int]

_UNRELIABLE = (
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.LOCAL_INV,
    WrOpcode.REG_MR,
    WrOpcode.NOP,
)


class Builder:
    """Writes entries of one kind; a function writes their segments unless a subclass does."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def write(
        self, wr: SendWr, data: memoryview, offset: int, fence: int, flags: int, last: int
    ) -> None:
        """Write the entry at `offset` of `data`, without its first dword.

        `fence`, `flags` and `last` are what the other three dwords of the control segment hold
        besides the size of the entry.
        """
        end = self._segments(wr, data, offset + 16)
        CONTROL.pack_into(data, offset + 4, (end - offset) >> 4 | fence, flags, last)


class _SendBuilder(Builder):
    """Writes SEND entries; those of one data segment are packed in one step."""

    def write(
        self, wr: SendWr, data: memoryview, offset: int, fence: int, flags: int, last: int
    ) -> None:
        if wr.inline_data is not None or len(wr.sg_list) != 1:
            Builder.write(self, wr, data, offset, fence, flags, last)
            return
        address, length, lkey = wr.sg_list[0]
        SEND_ENTRY.pack_into(data, offset + 4, 2 | fence, flags, last, length, lkey, address)


class _RdmaBuilder(Builder):
    """Writes RDMA WRITE and READ entries; one segment or few inline bytes go in one step."""

    def write(
        self, wr: SendWr, data: memoryview, offset: int, fence: int, flags: int, last: int
    ) -> None:
        inline, remote, rkey = wr.inline_data, wr.remote_addr, wr.rkey
        at = offset + 4
        if inline is None and len(wr.sg_list) == 1:
            address, length, lkey = wr.sg_list[0]
            RDMA_ENTRY.pack_into(
                data, at, 3 | fence, flags, last, remote, rkey, length, lkey, address
            )
        elif isinstance(inline, (bytes, bytearray)) and len(inline) <= _FIRST_INLINE:
            units, count = (36 + len(inline) + 15) >> 4, INLINE_BIT | len(inline)
            RDMA_INLINE_ENTRY.pack_into(
                data, at, units | fence, flags, last, remote, rkey, count, inline
            )
        else:
            Builder.write(self, wr, data, offset, fence, flags, last)


def write_inline(data: memoryview, offset: int, payload: Payload) -> int:
    """Write inline segments for `payload`; none of them crosses a 64-byte line of the entry."""
    view = memoryview(payload)
    position = 0
    while True:
        room = 64 - (offset & 63) - 4
        part = view[position : position + room]
        data[offset + 4 : offset + 4 + len(part)] = part
        _WORD.pack_into(data, offset, INLINE_BIT | len(part))
        position += len(part)
        offset = (offset + 4 + len(part) + 15) & ~15
        if position >= len(view):
            return offset


def write_data(wr: SendWr, data: memoryview, offset: int) -> int:
    """Write the payload: inline, or one data segment for each piece of the list."""
    if wr.inline_data is not None:
        return write_inline(data, offset, wr.inline_data)
    for address, length, lkey in wr.sg_list:
        DATA.pack_into(data, offset, length, lkey, address)
        offset += 16
    return offset


def _rdma(wr: SendWr, data: memoryview, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    return write_data(wr, data, offset + 16)


def _atomic(swap_add: int, compare: int, wr: SendWr, data: memoryview, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    PAIR.pack_into(data, offset + 16, swap_add, compare)
    return write_data(wr, data, offset + 32)


def _compare_swap(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.swap, wr.compare_add, wr, data, offset)


def _fetch_add(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.compare_add, 0, wr, data, offset)


def _masked_fetch_add(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.compare_add, wr.compare_add_mask, wr, data, offset)


def _masked_compare_swap(wr: SendWr, data: memoryview, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    masks = (wr.swap, wr.compare_add, wr.swap_mask, wr.compare_add_mask)
    FOUR.pack_into(data, offset + 16, *masks)
    return write_data(wr, data, offset + 48)


def _local_inv(wr: SendWr, data: memoryview, offset: int) -> int:
    LOCAL_INV.pack_into(data, offset, wr.invalidate_rkey)
    return offset + 32


def _reg_mr(wr: SendWr, data: memoryview, offset: int) -> int:
    mr = wr.mr
    if not isinstance(mr, FastRegMr):
        raise VerbsError("REG_MR needs the fast registration region in `mr`")
    if not 1 <= len(wr.pages) <= mr.max_pages:
        raise VerbsError(f"{len(wr.pages)} pages, the region takes {mr.max_pages}")
    if len(wr.pages) == 1:
        _PAGE.pack_into(mr.page_list.view, 0, wr.pages[0] | 1)
    else:
        pages = struct.pack(f">{len(wr.pages)}Q", *(page | 1 for page in wr.pages))
        mr.page_list.view[: len(pages)] = pages
    shift = wr.page_size.bit_length() - 1
    flags = _FAST_REG_FLAGS[wr.access]
    key = wr.key or mr.rkey
    FAST_REG.pack_into(data, offset, flags, key, mr.page_list.address, wr.iova, wr.length, 0, shift)
    return offset + 48


def _fast_reg_flags(access: int) -> int:
    flags = FastRegFlag.LOCAL_READ
    for wanted, flag in (
        (AccessFlags.LOCAL_WRITE, FastRegFlag.LOCAL_WRITE),
        (AccessFlags.REMOTE_WRITE, FastRegFlag.REMOTE_WRITE),
        (AccessFlags.REMOTE_READ, FastRegFlag.REMOTE_READ),
        (AccessFlags.REMOTE_ATOMIC, FastRegFlag.ATOMIC),
    ):
        if access & wanted:
            flags |= flag
    return int(flags)


_FAST_REG_FLAGS = tuple(_fast_reg_flags(access) for access in range(16))


def _nop(wr: SendWr, data: memoryview, offset: int) -> int:
    return offset


_SEND, _RDMA, _NOP = _SendBuilder(write_data), _RdmaBuilder(_rdma), Builder(_nop)
CONNECTED: dict[int, Builder] = {
    WrOpcode.SEND: _SEND,
    WrOpcode.SEND_WITH_IMM: _SEND,
    WrOpcode.SEND_WITH_INV: _SEND,
    WrOpcode.RDMA_WRITE: _RDMA,
    WrOpcode.RDMA_WRITE_WITH_IMM: _RDMA,
    WrOpcode.RDMA_READ: _RDMA,
    WrOpcode.ATOMIC_CMP_AND_SWP: Builder(_compare_swap),
    WrOpcode.ATOMIC_FETCH_AND_ADD: Builder(_fetch_add),
    WrOpcode.MASKED_ATOMIC_CMP_AND_SWP: Builder(_masked_compare_swap),
    WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD: Builder(_masked_fetch_add),
    WrOpcode.LOCAL_INV: Builder(_local_inv),
    WrOpcode.REG_MR: Builder(_reg_mr),
    WrOpcode.NOP: _NOP,
}
UNRELIABLE: dict[int, Builder] = {opcode: CONNECTED[opcode] for opcode in _UNRELIABLE}
RAW: dict[int, Builder] = {WrOpcode.SEND: _SEND, WrOpcode.NOP: _NOP}


def _datagram(port_pd: int, wr: SendWr, data: memoryview, offset: int) -> int:
    to = wr.address_vector
    if not isinstance(to, RoceAddress):
        raise VerbsError("a datagram needs an address handle")
    DATAGRAM.pack_into(
        data,
        offset,
        port_pd,
        0,
        0x80,  # GRH, source MAC index 0
        0,
        to.sgid_index,
        0,
        to.hop_limit,
        to.service_level << 29 | to.traffic_class << 20 | to.flow_label,
        to.dgid,
        wr.remote_qpn,
        wr.remote_qkey,
        _NO_VLAN,
        to.dmac,
    )
    return write_data(wr, data, offset + 48)


def datagram(pdn: int, port: int) -> dict[int, Builder]:
    """Return the builders of a UD queue pair, whose entries carry port and protection domain."""
    send = Builder(partial(_datagram, port << _PORT_SHIFT | pdn))
    return {WrOpcode.SEND: send, WrOpcode.SEND_WITH_IMM: send, WrOpcode.NOP: _NOP}
