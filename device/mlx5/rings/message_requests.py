"""The reading of send entries of queue pairs, from bytes fetched once.

Layouts: `device.layout.mlx5.wqe`; the formats here are those tables, compiled for the hot path.
Linux `ib/wr.c: mlx5_ib_post_send`, rdma-core `providers/mlx5/qp.c`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.mlx5.wqe import (
    CQE_REQUEST,
    CTRL,
    DATAGRAM,
    FENCE_SHIFT,
    INLINE,
    LONG_OPERANDS,
    OWN_QKEY,
    REMOTE,
    SEGMENT_BYTES,
    SHORT_OPERANDS,
    SOLICITED,
    XRC,
    SendOpcode,
)
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    COMPARE_SWAP,
    FETCH_ADD,
    LARGE_SEND,
    MASKED_COMPARE_SWAP,
    MASKED_FETCH_ADD,
    NOP,
    READ,
    SEND,
    SEND_IMM,
    SEND_INV,
    UPDATE,
    WRITE,
    WRITE_IMM,
)
from bluebridge.device.rdma.work import DatagramWork, SendWork, WorkError

CONTROL: Final = Struct(">II3xBI")
REMOTE_SEGMENT: Final = Struct(">QI4x")
ATOMIC_SEGMENT: Final = Struct(">QQ")
SWAP_SEGMENT: Final = Struct(">QQQQ")
SHORT_SWAP_SEGMENT: Final = Struct(">IIII")
SHORT_ADD_SEGMENT: Final = Struct(">II8x")
DATA_SEGMENT: Final = Struct(">IIQ")
DATAGRAM_SEGMENT: Final = Struct(">I4xI")
"""The Q_Key and the destination; what follows them is the path."""
LENGTH_MASK: Final = 0x7FFFFFFF
_OPCODE_MASK: Final = 0xFF
_LOW_24_BITS: Final = 0xFFFFFF
_LEAST_FENCE: Final = 2
"""Fences from here on wait for reads and atomics (inc/qp.h: MLX5_FENCE_MODE_FENCE)."""
_ADDRESS_AT: Final = 0x0C
_INLINE_LENGTH: Final = 4
_SENDS: Final = frozenset((SEND, SEND_IMM, SEND_INV))
_DATAGRAMS: Final = frozenset((SEND, SEND_IMM))

_OPCODES: Final = {
    NOP: SendOpcode.NOP,
    SEND_INV: SendOpcode.SEND_INVAL,
    WRITE: SendOpcode.RDMA_WRITE,
    WRITE_IMM: SendOpcode.RDMA_WRITE_IMM,
    SEND: SendOpcode.SEND,
    SEND_IMM: SendOpcode.SEND_IMM,
    READ: SendOpcode.RDMA_READ,
    COMPARE_SWAP: SendOpcode.ATOMIC_CS,
    FETCH_ADD: SendOpcode.ATOMIC_FA,
    MASKED_COMPARE_SWAP: SendOpcode.ATOMIC_MASKED_CS,
    MASKED_FETCH_ADD: SendOpcode.ATOMIC_MASKED_FA,
    LARGE_SEND: SendOpcode.LSO,
}
SEND_OPCODES: Final = {
    **{operation: int(opcode) for operation, opcode in _OPCODES.items()},
    UPDATE: int(SendOpcode.UMR),
}
"""The opcode that a completion repeats, by the operation of engines."""
_OPERATIONS: Final = {
    int(opcode): operation for operation, opcode in _OPCODES.items() if operation != LARGE_SEND
}
_MASKED: Final = {
    (MASKED_COMPARE_SWAP, LONG_OPERANDS): (SWAP_SEGMENT, 8),
    (MASKED_FETCH_ADD, LONG_OPERANDS): (ATOMIC_SEGMENT, 8),
    (MASKED_COMPARE_SWAP, SHORT_OPERANDS): (SHORT_SWAP_SEGMENT, 4),
    (MASKED_FETCH_ADD, SHORT_OPERANDS): (SHORT_ADD_SEGMENT, 4),
}
"""The segment with the operands of a masked atomic, and their size, by the opcode's modifier."""


def read_message(raw: bytes, index: int) -> SendWork:
    """Return the work request of an entry of an RC or UC queue pair; raises `WorkError`."""
    return _message(raw, index, CTRL.size)


def read_xrc(raw: bytes, index: int) -> SendWork:
    """Return the work request of an entry of an XRC queue pair; raises `WorkError`."""
    work = _message(raw, index, CTRL.size + XRC.size)
    if work.operation != NOP:
        work.srqn = int.from_bytes(raw[CTRL.size : CTRL.size + 4], "big") & _LOW_24_BITS
    return work


def read_datagram(raw: bytes, index: int) -> SendWork:
    """Return the work request of an entry of a UD queue pair or QP1; raises `WorkError`."""
    work = DatagramWork(index, _begin(raw))
    read_flags(work, raw)
    if work.operation == NOP:
        return work
    if work.operation not in _DATAGRAMS:
        raise WorkError(f"opcode {raw[3]:#x} on datagrams")
    end = CTRL.size + DATAGRAM.size
    if len(raw) < end:
        raise WorkError("no address vector")
    qkey, target = DATAGRAM_SEGMENT.unpack_from(raw, CTRL.size)
    work.qkey, work.own_qkey = qkey, qkey & OWN_QKEY != 0
    work.target_qpn = target & _LOW_24_BITS
    # Without its Q_Key and number: ports remember routes by these bytes.
    work.address = bytes(_ADDRESS_AT) + raw[CTRL.size + _ADDRESS_AT : end]
    parse_data(work, raw, end)
    return work


def _message(raw: bytes, index: int, position: int) -> SendWork:
    operation = _begin(raw)
    work = SendWork(index, operation)
    read_flags(work, raw)
    if operation == NOP:
        return work
    if operation not in _SENDS:
        end = position + REMOTE.size
        if end > len(raw):
            raise WorkError("no remote address segment")
        work.remote_address, work.rkey = REMOTE_SEGMENT.unpack_from(raw, position)
        position = end
    if operation in ATOMICS:
        position = _read_atomic(work, raw, position)
    if position > len(raw):
        raise WorkError("no XRC segment")
    parse_data(work, raw, position)
    if work.returns_data and any(isinstance(part, bytes) for part in work.parts):
        raise WorkError("inline data where the answer is to be stored")
    return work


def _read_atomic(work: SendWork, raw: bytes, position: int) -> int:
    """Take over the operands of an atomic; return where they end. Raises `WorkError`."""
    masked, segment = work.operation in (MASKED_COMPARE_SWAP, MASKED_FETCH_ADD), ATOMIC_SEGMENT
    if masked:
        found = _MASKED.get((work.operation, raw[0]))
        if found is None:
            raise WorkError(f"a masked atomic with modifier {raw[0]:#x}")
        segment, work.atomic_size = found
    end = position + segment.size
    if end > len(raw):
        raise WorkError("no atomic segment")
    first, second, *masks = segment.unpack_from(raw, position)
    if masks:
        work.atomic = (first, second, masks[0], masks[1])
    else:  # a masked add has boundaries of fields in place of a number to compare
        work.atomic = (first, 0, second, 0) if masked else (first, second, 0, 0)
    return end


def _begin(raw: bytes) -> int:
    """Return the operation of an entry; raises `WorkError`."""
    if len(raw) < CONTROL.size:
        raise WorkError(f"an entry of {len(raw)} bytes")
    opcode = raw[3]
    operation = _OPERATIONS.get(opcode)
    if operation is None:
        raise WorkError(f"opcode {opcode:#x}")
    return operation


def read_flags(work: SendWork, raw: bytes) -> None:
    """Take over the flags and the word at the end of the control segment."""
    _, _, flags, immediate = CONTROL.unpack_from(raw)
    work.signalled = flags & CQE_REQUEST != 0
    work.solicited = flags & SOLICITED != 0
    work.fence = flags >> FENCE_SHIFT >= _LEAST_FENCE
    work.immediate = immediate


def parse_data(work: SendWork, raw: bytes, position: int) -> None:
    """Append the data and inline segments from `position` on; raises `WorkError`."""
    end, total, parts = len(raw), 0, work.parts
    while position + SEGMENT_BYTES <= end:
        count, lkey, address = DATA_SEGMENT.unpack_from(raw, position)
        if count & INLINE:
            count &= LENGTH_MASK
            start = position + _INLINE_LENGTH
            if start + count > end:
                raise WorkError(f"{count} inline bytes are more than the entry holds")
            if count:
                parts.append(raw[start : start + count])
            position = (start + count + SEGMENT_BYTES - 1) & -SEGMENT_BYTES
        else:
            if count:
                parts.append((lkey, address, count))
            position += SEGMENT_BYTES
        total += count
    work.length = total
