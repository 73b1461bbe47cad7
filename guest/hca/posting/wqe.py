"""Work queue entries: receives, and of sends what follows the control segment.

ib/qp.c: _mlx4_ib_post_send. Each builder writes its segments from `offset` (16 bytes into the
entry) and returns where the next one goes. The control segment is written by
`guest.hca.queues.work_queues`, its ownership word last.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from bluebridge.device.layout.mlx4.wqe import INVALID_LKEY, FastRegFlag, SendOpcode
from bluebridge.guest.hca.resources.memory_regions import FastRegMr
from bluebridge.guest.verbs.enums import AccessFlags, WrOpcode
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.requests import SendWr
from bluebridge.guest.verbs.roce import RoceAddress
from bluebridge.guest.verbs.values import RecvWr

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

INLINE_BIT = 0x80000000
_WORD = struct.Struct(">I")
_DATA = struct.Struct(">IIQ")
_REMOTE = struct.Struct(">QI4x")
_REMOTE_DATA = struct.Struct(">QI4xIIQ")
_PAIR = struct.Struct(">QQ")
_FOUR = struct.Struct(">QQQQ")
_LOCAL_INV = struct.Struct(">8xI20x")
_FAST_REG = struct.Struct(">IIQQQII8x")
_DATAGRAM = struct.Struct(">IBBHxBBBI16sIIH6s")
_NO_VLAN = 0xFFFF
_ETHERNET_PORT = 1 << 24

Payload = bytes | bytearray | memoryview
Builder = Callable[[SendWr, memoryview, int], int]


def write_inline(data: memoryview, offset: int, payload: Payload) -> int:
    """Inline segments for `payload`; none of them crosses a 64-byte line of the entry."""
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


def write_data(data: memoryview, offset: int, wr: SendWr) -> int:
    """The payload: inline, or one data segment for each piece of the list."""
    if wr.inline_data is not None:
        return write_inline(data, offset, wr.inline_data)
    for address, length, lkey in wr.sg_list:
        _DATA.pack_into(data, offset, length, lkey, address)
        offset += 16
    return offset


def _send(wr: SendWr, data: memoryview, offset: int) -> int:
    return write_data(data, offset, wr)


def _rdma(wr: SendWr, data: memoryview, offset: int) -> int:
    if len(wr.sg_list) == 1 and wr.inline_data is None:
        address, length, lkey = wr.sg_list[0]
        _REMOTE_DATA.pack_into(data, offset, wr.remote_addr, wr.rkey, length, lkey, address)
        return offset + 32
    _REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    return write_data(data, offset + 16, wr)


def _atomic(swap_add: int, compare: int, wr: SendWr, data: memoryview, offset: int) -> int:
    _REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    _PAIR.pack_into(data, offset + 16, swap_add, compare)
    return write_data(data, offset + 32, wr)


def _compare_swap(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.swap, wr.compare_add, wr, data, offset)


def _fetch_add(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.compare_add, 0, wr, data, offset)


def _masked_fetch_add(wr: SendWr, data: memoryview, offset: int) -> int:
    return _atomic(wr.compare_add, wr.compare_add_mask, wr, data, offset)


def _masked_compare_swap(wr: SendWr, data: memoryview, offset: int) -> int:
    _REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    masks = (wr.swap, wr.compare_add, wr.swap_mask, wr.compare_add_mask)
    _FOUR.pack_into(data, offset + 16, *masks)
    return write_data(data, offset + 48, wr)


def _local_inv(wr: SendWr, data: memoryview, offset: int) -> int:
    _LOCAL_INV.pack_into(data, offset, wr.invalidate_rkey)
    return offset + 32


def _reg_mr(wr: SendWr, data: memoryview, offset: int) -> int:
    mr = wr.mr
    if not isinstance(mr, FastRegMr):
        raise VerbsError("REG_MR needs the fast registration region in `mr`")
    if not 1 <= len(wr.pages) <= mr.max_pages:
        raise VerbsError(f"{len(wr.pages)} pages, the region takes {mr.max_pages}")
    pages = struct.pack(f">{len(wr.pages)}Q", *(page | 1 for page in wr.pages))
    mr.page_list.view[: len(pages)] = pages
    shift = wr.page_size.bit_length() - 1
    flags = _fast_reg_flags(wr.access)
    key = wr.key or mr.rkey
    _FAST_REG.pack_into(
        data, offset, flags, key, mr.page_list.address, wr.iova, wr.length, 0, shift
    )
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


def _nop(wr: SendWr, data: memoryview, offset: int) -> int:
    return offset


CONNECTED: dict[int, Builder] = {
    WrOpcode.SEND: _send,
    WrOpcode.SEND_WITH_IMM: _send,
    WrOpcode.SEND_WITH_INV: _send,
    WrOpcode.RDMA_WRITE: _rdma,
    WrOpcode.RDMA_WRITE_WITH_IMM: _rdma,
    WrOpcode.RDMA_READ: _rdma,
    WrOpcode.ATOMIC_CMP_AND_SWP: _compare_swap,
    WrOpcode.ATOMIC_FETCH_AND_ADD: _fetch_add,
    WrOpcode.MASKED_ATOMIC_CMP_AND_SWP: _masked_compare_swap,
    WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD: _masked_fetch_add,
    WrOpcode.LOCAL_INV: _local_inv,
    WrOpcode.REG_MR: _reg_mr,
    WrOpcode.NOP: _nop,
}
_UNRELIABLE = (
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.LOCAL_INV,
    WrOpcode.REG_MR,
    WrOpcode.NOP,
)
UNRELIABLE: dict[int, Builder] = {opcode: CONNECTED[opcode] for opcode in _UNRELIABLE}
RAW: dict[int, Builder] = {WrOpcode.SEND: _send, WrOpcode.NOP: _nop}


def _datagram(pdn: int, wr: SendWr, data: memoryview, offset: int) -> int:
    to = wr.address_vector
    if not isinstance(to, RoceAddress):
        raise VerbsError("a datagram needs an address handle")
    _DATAGRAM.pack_into(
        data,
        offset,
        _ETHERNET_PORT | pdn,
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
    return write_data(data, offset + 48, wr)


def datagram(pdn: int) -> dict[int, Builder]:
    """The builders of a UD queue pair, whose entries carry the protection domain."""
    send = partial(_datagram, pdn)
    return {WrOpcode.SEND: send, WrOpcode.SEND_WITH_IMM: send, WrOpcode.NOP: _nop}


def write_receive(data: memoryview, offset: int, wr: RecvWr, max_sge: int) -> None:
    """Fill the data segments of a receive entry and end the list."""
    for address, length, lkey in wr.sg_list:
        _DATA.pack_into(data, offset, length, lkey, address)
        offset += 16
    if len(wr.sg_list) < max_sge:
        _DATA.pack_into(data, offset, 0, INVALID_LKEY, 0)
