"""Work queue entries of each opcode (ib/wr.c: mlx5_ib_post_send).

A function of type `Segments` writes what follows the control segment into a buffer, and returns
where the entry ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.wqe import (
    CQE_REQUEST,
    FENCE_SHIFT,
    INLINE,
    LONG_OPERANDS,
    SOLICITED,
    UMR,
    KeyMask,
    SendOpcode,
    UmrFlag,
)
from bluebridge.guest.drivers.common.shared_receives import DATA
from bluebridge.guest.drivers.mlx5.keys import ANY_PAIR, FastRegMr, key_rights
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpType, SendFlags, WcOpcode, WrOpcode
from bluebridge.guest.verbs.values import MemoryRegion, RoceAddress, SendWr

CONTROL: Final = struct.Struct(">II3xBI")
REMOTE: Final = struct.Struct(">QI4x")
ATOMIC: Final = struct.Struct(">QQ")
MASKED_SWAP: Final = struct.Struct(">QQQQ")
DATAGRAM: Final = struct.Struct(">I4xIBxH4x6sBBI16s")
_WORD: Final = struct.Struct(">I")
_CONTROL_BYTES: Final = 16
_FENCE: Final = 4 << FENCE_SHIFT
"""Wait for reads and atomics (inc/qp.h: MLX5_FENCE_MODE_STRONG_ORDERING is 3, FENCE 4)."""
_EXTENDED_ADDRESS: Final = 1 << 31
_GLOBAL_ROUTE: Final = 1 << 30
FIRST_UDP_PORT: Final = 0xC000

_REGISTERED: Final = (
    KeyMask.LENGTH | KeyMask.PAGE_SIZE | KeyMask.START | KeyMask.MAY_INVALIDATE | KeyMask.KEY
    | KeyMask.LOCAL_READ | KeyMask.LOCAL_WRITE | KeyMask.REMOTE_READ | KeyMask.REMOTE_WRITE
    | KeyMask.ATOMIC | KeyMask.FREE
)  # fmt: skip
"""The fields of a key that a registration sets (ib/wr.c: reg_umr_ctrl_seg)."""
_READ_WRITE: Final = 3
"""Of an entry of a list of pages: it is there (ib/mlx5_ib.h: MLX5_IB_MTT_PRESENT)."""
KEY_CHANGE_BYTES: Final = _CONTROL_BYTES + UMR.size + MKC.size + DATA.size
"""Bytes of a registration."""
OVERHEAD: Final = {
    QpType.RC: _CONTROL_BYTES + REMOTE.size + MASKED_SWAP.size,
    QpType.UC: _CONTROL_BYTES + REMOTE.size,
    QpType.UD: _CONTROL_BYTES + DATAGRAM.size,
    QpType.GSI: _CONTROL_BYTES + DATAGRAM.size,
    QpType.RAW_ETH: 2 * _CONTROL_BYTES,
}
"""Bytes before the data segments, at most."""

Segments = Callable[[SendWr, bytearray, int], int]


class Operation(NamedTuple):
    """One opcode of verbs: the hardware's, what writes its segments, what completions call it."""

    code: SendOpcode
    segments: Segments
    done: WcOpcode


def write_data(wr: SendWr, data: bytearray, offset: int) -> int:
    """Write the payload: inline in one segment, or one data segment for each piece."""
    payload = wr.inline_data
    if payload is not None:
        length = len(payload)
        _WORD.pack_into(data, offset, INLINE | length)
        offset += 4
        data[offset : offset + length] = payload
        return (offset + length + 15) & ~15
    for address, length, lkey in wr.sg_list:
        DATA.pack_into(data, offset, length, lkey, address)
        offset += 16
    return offset


def _rdma(wr: SendWr, data: bytearray, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    return write_data(wr, data, offset + 16)


def _compare_swap(wr: SendWr, data: bytearray, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    ATOMIC.pack_into(data, offset + 16, wr.swap, wr.compare_add)
    return write_data(wr, data, offset + 32)


def _fetch_add(wr: SendWr, data: bytearray, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    ATOMIC.pack_into(data, offset + 16, wr.compare_add, 0)
    return write_data(wr, data, offset + 32)


def _masked_compare_swap(wr: SendWr, data: bytearray, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    operands = (wr.swap, wr.compare_add, wr.swap_mask, wr.compare_add_mask)
    MASKED_SWAP.pack_into(data, offset + 16, *operands)
    return write_data(wr, data, offset + 48)


def _masked_fetch_add(wr: SendWr, data: bytearray, offset: int) -> int:
    REMOTE.pack_into(data, offset, wr.remote_addr, wr.rkey)
    ATOMIC.pack_into(data, offset + 16, wr.compare_add, wr.compare_add_mask)
    return write_data(wr, data, offset + 32)


def _nop(wr: SendWr, data: bytearray, offset: int) -> int:
    return offset


def _datagram(wr: SendWr, data: bytearray, offset: int) -> int:
    to = wr.address_vector
    if not isinstance(to, RoceAddress):
        raise VerbsError("a datagram needs an address handle")
    DATAGRAM.pack_into(
        data,
        offset,
        wr.remote_qkey,
        wr.remote_qpn | _EXTENDED_ADDRESS,
        to.service_level << 1,
        FIRST_UDP_PORT,
        to.dmac,
        to.traffic_class,
        to.hop_limit,
        _GLOBAL_ROUTE | to.sgid_index << 20 | to.flow_label,
        to.dgid,
    )
    return write_data(wr, data, offset + DATAGRAM.size)


def _local_inv(wr: SendWr, data: bytearray, offset: int) -> int:
    """Write a change of a key that makes it free (ib/wr.c: set_linv_wr)."""
    flags = UmrFlag.MUST_NOT_BE_FREE | UmrFlag.INLINE
    data[offset : offset + UMR.size] = UMR.pack(flags=flags, mask=KeyMask.FREE)
    offset += UMR.size
    data[offset : offset + MKC.size] = MKC.pack(free=1)
    return offset + MKC.size


def _reg_mr(wr: SendWr, data: bytearray, offset: int) -> int:
    """Write a change of a key that gives it memory (ib/wr.c: set_reg_wr)."""
    mr = wr.mr
    if not isinstance(mr, FastRegMr):
        raise VerbsError("REG_MR needs the fast registration region in `mr`")
    if not 1 <= len(wr.pages) <= mr.max_pages:
        raise VerbsError(f"{len(wr.pages)} pages, the region takes {mr.max_pages}")
    octowords = (len(wr.pages) + 1) // 2
    pages = struct.pack(f">{len(wr.pages)}Q", *(page | _READ_WRITE for page in wr.pages)).ljust(
        16 * octowords, b"\0"
    )
    mr.page_list.view[: len(pages)] = pages
    data[offset : offset + UMR.size] = UMR.pack(
        flags=UmrFlag.MUST_BE_FREE, octowords=octowords, mask=_REGISTERED
    )
    offset += UMR.size
    about: dict[str, Value] = {
        "qpn": ANY_PAIR, "key": _new_key(wr, mr) & 0xFF, "may_invalidate": 1,
        "start": wr.iova, "length": wr.length, "translations": octowords,
        "log_page_size": wr.page_size.bit_length() - 1,
    }  # fmt: skip
    data[offset : offset + MKC.size] = MKC.pack(key_rights(wr.access) | about)
    offset += MKC.size
    DATA.pack_into(data, offset, len(pages), mr.list_key, mr.page_list.address)
    return offset + DATA.size


def _new_key(wr: SendWr, mr: MemoryRegion) -> int:
    """Return the key that a registration gives its region: the present one if it names none."""
    return wr.key or mr.rkey


def _frame(wr: SendWr, data: bytearray, offset: int) -> int:
    data[offset : offset + 16] = bytes(16)  # no checksums, nothing inline
    return write_data(wr, data, offset + 16)


_NOP: Final = Operation(SendOpcode.NOP, _nop, WcOpcode.NOP)
_KEYS: Final = {
    WrOpcode.LOCAL_INV: Operation(SendOpcode.UMR, _local_inv, WcOpcode.LOCAL_INV),
    WrOpcode.REG_MR: Operation(SendOpcode.UMR, _reg_mr, WcOpcode.REG_MR),
}
_UNRELIABLE: Final = {
    WrOpcode.SEND: Operation(SendOpcode.SEND, write_data, WcOpcode.SEND),
    WrOpcode.SEND_WITH_IMM: Operation(SendOpcode.SEND_IMM, write_data, WcOpcode.SEND),
    WrOpcode.RDMA_WRITE: Operation(SendOpcode.RDMA_WRITE, _rdma, WcOpcode.RDMA_WRITE),
    WrOpcode.RDMA_WRITE_WITH_IMM: Operation(SendOpcode.RDMA_WRITE_IMM, _rdma, WcOpcode.RDMA_WRITE),
    WrOpcode.NOP: _NOP,
    **_KEYS,
}
OPERATIONS: Final[dict[QpType, dict[WrOpcode, Operation]]] = {
    QpType.RC: {
        **_UNRELIABLE,
        WrOpcode.SEND_WITH_INV: Operation(SendOpcode.SEND_INVAL, write_data, WcOpcode.SEND),
        WrOpcode.RDMA_READ: Operation(SendOpcode.RDMA_READ, _rdma, WcOpcode.RDMA_READ),
        WrOpcode.ATOMIC_CMP_AND_SWP: Operation(
            SendOpcode.ATOMIC_CS, _compare_swap, WcOpcode.COMP_SWAP
        ),
        WrOpcode.ATOMIC_FETCH_AND_ADD: Operation(
            SendOpcode.ATOMIC_FA, _fetch_add, WcOpcode.FETCH_ADD
        ),
        WrOpcode.MASKED_ATOMIC_CMP_AND_SWP: Operation(
            SendOpcode.ATOMIC_MASKED_CS, _masked_compare_swap, WcOpcode.MASKED_COMP_SWAP
        ),
        WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD: Operation(
            SendOpcode.ATOMIC_MASKED_FA, _masked_fetch_add, WcOpcode.MASKED_FETCH_ADD
        ),
    },
    QpType.UC: _UNRELIABLE,
    QpType.UD: {
        WrOpcode.SEND: Operation(SendOpcode.SEND, _datagram, WcOpcode.SEND),
        WrOpcode.SEND_WITH_IMM: Operation(SendOpcode.SEND_IMM, _datagram, WcOpcode.SEND),
        WrOpcode.NOP: _NOP,
    },
    QpType.GSI: {WrOpcode.SEND: Operation(SendOpcode.SEND, _datagram, WcOpcode.SEND)},
    QpType.RAW_ETH: {
        WrOpcode.SEND: Operation(SendOpcode.SEND, _frame, WcOpcode.SEND),
        WrOpcode.NOP: _NOP,
    },
}
"""What queue pairs of each type can send."""


def write_entry(
    wr: SendWr, operation: Operation, data: bytearray, index: int, number: int, always: int
) -> int:
    """Write a whole entry into `data` and return its length in bytes.

    `index` is that of its first block, `number` that of the queue pair or SQ, `always` are flags.
    """
    end = operation.segments(wr, data, _CONTROL_BYTES)
    flags, sent = always, wr.send_flags
    if sent & SendFlags.SIGNALED:
        flags |= CQE_REQUEST
    if sent & SendFlags.SOLICITED:
        flags |= SOLICITED
    if sent & SendFlags.FENCE:
        flags |= _FENCE
    code = operation.code
    last = 0
    if code in (SendOpcode.SEND_IMM, SendOpcode.RDMA_WRITE_IMM):
        last = wr.imm
    elif code is SendOpcode.SEND_INVAL:
        last = wr.invalidate_rkey
    elif code is SendOpcode.UMR:
        mr = wr.mr
        last = wr.invalidate_rkey
        if mr is not None and operation.done is WcOpcode.REG_MR:
            last = _new_key(wr, mr)
    first = (index & 0xFFFF) << 8 | code
    if code in (SendOpcode.ATOMIC_MASKED_CS, SendOpcode.ATOMIC_MASKED_FA):
        first |= LONG_OPERANDS << 24
    CONTROL.pack_into(data, 0, first, number << 8 | end >> 4, flags, last)
    return end
