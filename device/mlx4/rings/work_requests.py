"""Work queue entries as the engines see them, parsed from bytes that were read once.

Layouts: `device.layout.mlx4.wqe`; the formats here are those tables, compiled for the hot path.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.wqe import (
    CQE_REQUEST,
    CTRL_SIZE,
    DS_MASK,
    FENCE,
    INLINE,
    INVALID_LKEY,
    SOLICITED,
    BindFlag,
    SendOpcode,
)
from bluebridge.device.rdma.memory.rights import Rights
from bluebridge.device.rdma.memory.scatter_gather import Sge
from bluebridge.device.rdma.memory.windows import Binding

CTRL: Final = Struct(">IIII")
RADDR: Final = Struct(">QI4x")
ATOMIC: Final = Struct(">QQ")
MASKED_ATOMIC: Final = Struct(">QQQQ")
DATA: Final = Struct(">IIQ")
PAIR: Final = Struct(">IIQ4xI8x")
"""Two data segments, of the second one the key."""
DATAGRAM: Final = Struct(">32sIIH6s")
BIND: Final = Struct(">IIIIQQ")
LARGE_SEND: Final = Struct(">HH")
FAST_REG: Final = Struct(">IIQQQII")

OPCODE_MASK: Final = 0x1F
LENGTH_MASK: Final = 0x7FFFFFFF

NOP: Final = int(SendOpcode.NOP)
SEND_INVAL: Final = int(SendOpcode.SEND_INVAL)
RDMA_WRITE: Final = int(SendOpcode.RDMA_WRITE)
RDMA_WRITE_IMM: Final = int(SendOpcode.RDMA_WRITE_IMM)
SEND: Final = int(SendOpcode.SEND)
SEND_IMM: Final = int(SendOpcode.SEND_IMM)
RDMA_READ: Final = int(SendOpcode.RDMA_READ)
ATOMIC_CS: Final = int(SendOpcode.ATOMIC_CS)
ATOMIC_FA: Final = int(SendOpcode.ATOMIC_FA)
MASKED_CS: Final = int(SendOpcode.MASKED_ATOMIC_CS)
MASKED_FA: Final = int(SendOpcode.MASKED_ATOMIC_FA)
FAST_REG_MR: Final = int(SendOpcode.FAST_REG_MR)
LOCAL_INVAL: Final = int(SendOpcode.LOCAL_INVAL)
LSO: Final = int(SendOpcode.LSO)
BIND_MW: Final = int(SendOpcode.BIND_MW)

_BIND_RIGHTS: Final = (
    (int(BindFlag.REMOTE_READ), int(Rights.REMOTE_READ)),
    (int(BindFlag.REMOTE_WRITE), int(Rights.REMOTE_WRITE)),
    (int(BindFlag.REMOTE_ATOMIC), int(Rights.REMOTE_ATOMIC)),
)
SENDS: Final = frozenset((SEND, SEND_IMM, SEND_INVAL))
WRITES: Final = frozenset((RDMA_WRITE, RDMA_WRITE_IMM))
ATOMICS: Final = frozenset((ATOMIC_CS, ATOMIC_FA, MASKED_CS, MASKED_FA))
LOCAL: Final = frozenset((NOP, FAST_REG_MR, LOCAL_INVAL, BIND_MW))


class WqeError(Exception):
    """A work queue entry that no driver would write; `status` is for its completion."""

    status: ClassVar[CompletionStatus] = CompletionStatus.LOCAL_QP_OP_ERR


class TooLongError(WqeError):
    """A message that is longer than its queue pair may send."""

    status: ClassVar[CompletionStatus] = CompletionStatus.LOCAL_LENGTH_ERR


class SendWqe:
    """One send work request, and what the requester remembers of it until it completes.

    `parts` is the gather list in order: SGEs, and `bytes` for inline data; `length` its bytes.
    `atomic` are the operands in the order of `fabric.messages.Request.atomic`. `segment` is the
    remainder of the entry for opcodes with one special segment. `status` is 0 or the one
    of a completion in error that waits for its turn.
    """

    __slots__ = (
        "atomic",
        "flags",
        "immediate",
        "index",
        "length",
        "opcode",
        "packets",
        "parts",
        "psn",
        "remote_address",
        "rkey",
        "segment",
        "status",
        "word1",
    )

    def __init__(self, index: int, opcode: int, word1: int, flags: int, immediate: int) -> None:
        self.index = index
        self.opcode = opcode
        self.word1 = word1
        self.flags = flags
        self.immediate = immediate
        self.parts: list[Sge | bytes] = []
        self.length = 0
        self.remote_address = 0
        self.rkey = 0
        self.atomic = (0, 0, 0, 0)
        self.segment = b""
        self.psn = 0
        self.packets = 1
        self.status = 0

    @property
    def signalled(self) -> bool:
        """Whether success is to be completed too."""
        return self.flags & CQE_REQUEST == CQE_REQUEST

    @property
    def fence(self) -> bool:
        """Whether earlier reads and atomics must be done first."""
        return bool(self.word1 & FENCE)

    @property
    def solicited(self) -> bool:
        """Whether the receiver's completion is a solicited event."""
        return bool(self.flags & SOLICITED)

    @property
    def returns_data(self) -> bool:
        """Whether the answer carries data: a read or an atomic."""
        return self.opcode == RDMA_READ or self.opcode in ATOMICS


def parse_header(raw: bytes, index: int) -> SendWqe:
    """The control segment of an entry; raises `WqeError` when it is too short."""
    if len(raw) < CTRL_SIZE:
        raise WqeError(f"{len(raw)} bytes")
    word0, word1, flags, immediate = CTRL.unpack_from(raw)
    return SendWqe(index, word0 & OPCODE_MASK, word1, flags, immediate)


def parse_connected(raw: bytes, index: int) -> SendWqe:
    """An entry of an RC or UC queue pair; raises `WqeError` for garbage."""
    wqe = parse_header(raw, index)
    opcode = wqe.opcode
    position = CTRL_SIZE
    if opcode in SENDS:
        pass
    elif opcode in WRITES or opcode == RDMA_READ:
        position = _remote(wqe, raw, position)
    elif opcode in ATOMICS:
        position = _atomic(wqe, raw, _remote(wqe, raw, position))
    elif opcode in LOCAL:
        wqe.segment = raw[CTRL_SIZE:]
        return wqe
    else:
        raise WqeError(f"opcode {opcode:#x}")
    parse_data(wqe, raw, position)
    if wqe.returns_data and any(isinstance(part, bytes) for part in wqe.parts):
        raise WqeError("inline data where the answer is to be stored")
    return wqe


def _remote(wqe: SendWqe, raw: bytes, position: int) -> int:
    end = position + RADDR.size
    if end > len(raw):
        raise WqeError("no remote address segment")
    wqe.remote_address, wqe.rkey = RADDR.unpack_from(raw, position)
    return end


def _atomic(wqe: SendWqe, raw: bytes, position: int) -> int:
    layout = MASKED_ATOMIC if wqe.opcode == MASKED_CS else ATOMIC
    end = position + layout.size
    if end > len(raw):
        raise WqeError("no atomic segment")
    operands = layout.unpack_from(raw, position)
    if wqe.opcode == MASKED_CS:
        wqe.atomic = operands
    elif wqe.opcode == MASKED_FA:  # add and field boundaries
        wqe.atomic = (operands[0], 0, operands[1], 0)
    else:
        wqe.atomic = (operands[0], operands[1], 0, 0)
    return end


def parse_data(wqe: SendWqe, raw: bytes, position: int) -> None:
    """Append the data and inline segments from `position` on; raises `WqeError`."""
    end, total, parts = len(raw), 0, wqe.parts
    while position + 4 <= end:
        if position + 16 <= end:
            count, lkey, address = DATA.unpack_from(raw, position)
        else:
            count, lkey, address = int.from_bytes(raw[position : position + 4], "big"), 0, 0
        if count & INLINE:
            count &= LENGTH_MASK
            start = position + 4
            if start + count > end:
                raise WqeError(f"{count} inline bytes are more than the entry holds")
            if count:
                parts.append(raw[start : start + count])
            position = (start + count + 15) & ~15
        else:
            if position + 16 > end:
                raise WqeError("half a data segment")
            if count:
                parts.append((lkey, address, count))
            position += 16
        total += count
    wqe.length = total


def parse_large_send(wqe: SendWqe, raw: bytes, position: int, limit: int) -> tuple[int, bytes]:
    """The segment of a large send and the data behind it: payload bytes of each piece, headers.

    Raises `WqeError` for pieces of nothing, or of more than `limit` bytes with their headers.
    """
    start = position + LARGE_SEND.size
    if len(raw) < start:
        raise WqeError("no segment for the headers of a large send")
    mss, size = LARGE_SEND.unpack_from(raw, position)
    end = start + size
    if end > len(raw) or not mss or mss + size > limit:
        raise WqeError(f"a large send of {mss} bytes behind {size} bytes of headers")
    parse_data(wqe, raw, (end + 15) & ~15)
    return mss, raw[start:end]


def binding_of(segment: bytes) -> Binding:
    """What a bind segment asks for.

    Linux `mlx4/mr.c: mlx4_mw_enable`, rdma-core `providers/mlx4/qp.c: set_bind_seg`.
    """
    access, kind, rkey, lkey, va, length = BIND.unpack_from(segment)
    rights = 0
    for flag, right in _BIND_RIGHTS:
        if access & flag:
            rights |= right
    second_type, zero_based = bool(kind & BindFlag.TYPE_2), bool(kind & BindFlag.ZERO_BASED)
    return Binding(rkey, lkey, va, length, rights, second_type=second_type, zero_based=zero_based)


def parse_receive(raw: bytes) -> list[Sge]:
    """The scatter list of a receive entry: up to its end or the segment with lkey 0x100."""
    if len(raw) >= PAIR.size:  # mostly there is one segment and then the end
        count, lkey, address, end = PAIR.unpack_from(raw)
        if end == INVALID_LKEY and lkey != INVALID_LKEY and 0 < count <= LENGTH_MASK:
            return [(lkey, address, count)]
    sges: list[Sge] = []
    for position in range(0, len(raw) - 15, 16):
        count, lkey, address = DATA.unpack_from(raw, position)
        if lkey == INVALID_LKEY:
            break
        count &= LENGTH_MASK if count != INLINE else 0
        if count:
            sges.append((lkey, address, count))
    return sges


def slots_of(word1: int, stride_shift: int) -> int:
    """How many slots of the ring an entry takes; garbage of size 0 takes one."""
    return max(1, ((word1 & DS_MASK) * 16 + (1 << stride_shift) - 1) >> stride_shift)
