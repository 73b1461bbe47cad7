"""The reading of work queue entries as drivers write them, from bytes fetched once.

Layouts: `device.layout.mlx4.wqe`; the formats here are those tables, compiled for the hot path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct, unpack
from typing import Final

from bluebridge.device.frames.sending import IP_CHECKSUM, L4_CHECKSUM
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.wqe import (
    CQE_REQUEST,
    CTRL_SIZE,
    DS_MASK,
    FENCE,
    FORCE_LOOPBACK,
    INLINE,
    INSERT_CVLAN,
    INSERT_SVLAN,
    IP_CSUM,
    SOLICITED,
    BindFlag,
)
from bluebridge.device.layout.net.ethernet import ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN
from bluebridge.device.mlx4.settings.capabilities import MAX_FRAME
from bluebridge.device.mlx4.words import OPERATIONS
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.datagrams.sender import MAX_PAYLOAD
from bluebridge.device.rdma.memory.region import Rights
from bluebridge.device.rdma.memory.regions import Binding, Registration
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    BIND,
    INVALIDATE,
    LARGE_SEND,
    LOCAL,
    MASKED_COMPARE_SWAP,
    MASKED_FETCH_ADD,
    NOP,
    READ,
    REGISTER,
    SEND,
    SEND_IMM,
    SEND_INV,
    WRITE,
    WRITE_IMM,
)
from bluebridge.device.rdma.work import DatagramWork, FrameWork, PacketWork, SendWork, WorkError
from bluebridge.device.rings.receive_ring import LENGTH_MASK, SEGMENT

CTRL: Final = Struct(">IIII")
RADDR: Final = Struct(">QI4x")
ATOMIC: Final = Struct(">QQ")
MASKED_ATOMIC: Final = Struct(">QQQQ")
DATAGRAM: Final = Struct(">32sIIH6s")
BIND_SEGMENT: Final = Struct(">IIIIQQ")
LARGE_SEND_SEGMENT: Final = Struct(">HH")
FAST_REG: Final = Struct(">IIQQQII")

_ADDRESSED: Final = Struct(">I28xII")
"""Layout of the datagram segment: word with the protection domain, queue pair, Q_Key."""
OPCODE_MASK: Final = 0x1F
_LOW_24_BITS: Final = 0xFFFFFF
_BOTH_CHECKSUMS: Final = IP_CHECKSUM | L4_CHECKSUM

_RIGHTS_SHIFT: Final = 27
"""Lowest bit of the rights in segments, where they are in the order of `Rights`."""
_BOUND: Final = int(Rights.REMOTE_READ | Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
_REGISTERED: Final = int(Rights.LOCAL_READ | Rights.LOCAL_WRITE) | _BOUND
_KEY_OFFSET: Final = 8
PAGE_MASK: Final = ~7
_ADDRESS: Final = CTRL_SIZE
_ADDRESS_END: Final = CTRL_SIZE + 32
_TAG: Final = CTRL_SIZE + 40
_DATAGRAM_END: Final = CTRL_SIZE + DATAGRAM.size
OWN_QKEY: Final = 1 << 31
_ADDRESSING: Final = ATOMICS | {WRITE, WRITE_IMM, READ}
_CONNECTED: Final = _ADDRESSING | LOCAL | {SEND, SEND_IMM, SEND_INV}
_DATAGRAMS: Final = frozenset((NOP, SEND, SEND_IMM, LARGE_SEND))
_FRAMES: Final = frozenset((NOP, SEND, LARGE_SEND))
_CQE_REQUEST: Final = int(CQE_REQUEST)
_FENCE: Final = int(FENCE)
_SOLICITED: Final = int(SOLICITED)
_CHECKSUMS: Final = int(IP_CSUM).bit_length() - 1
"""Place of the two checksum bits, which are in the order of those of `offloads`."""
_TAG_TYPES: Final = {INSERT_CVLAN: ETHERTYPE_VLAN, INSERT_SVLAN: ETHERTYPE_SERVICE_VLAN}


class EntryReader(ABC):
    """The reader of the entries of one send queue; its class depends on the queue pair's role."""

    @abstractmethod
    def read(self, raw: bytes, index: int) -> SendWork:
        """Return the work request of an entry; raises `WorkError` for garbage."""


class ConnectedReader(EntryReader):
    """The reader of entries of RC, UC and XRC queue pairs; `qpn` is the one that has the queue."""

    def __init__(self, bus: HostBus, qpn: int) -> None:
        self._bus = bus
        self._qpn = qpn

    def read(self, raw: bytes, index: int) -> SendWork:
        operation, word1, flags, immediate = _control(raw, _CONNECTED)
        work = SendWork(index, operation)
        _flag(work, word1, flags, immediate)
        work.srqn = flags >> 8
        position = CTRL_SIZE
        if operation in LOCAL:
            self._local(work, raw)
            return work
        if operation in _ADDRESSING:
            position = _remote(work, raw, position)
            if operation in ATOMICS:
                position = _atomic(work, raw, position)
        parse_data(work, raw, position)
        if work.returns_data and any(isinstance(part, bytes) for part in work.parts):
            raise WorkError("inline data where the answer is to be stored")
        return work

    def _local(self, work: SendWork, raw: bytes) -> None:
        """Read the segment of a local operation; if it is too short, `work.whole` becomes False."""
        size = len(raw) - CTRL_SIZE
        if work.operation == INVALIDATE:
            work.whole = size >= _KEY_OFFSET + 4
            if work.whole:
                start = CTRL_SIZE + _KEY_OFFSET
                work.rkey = int.from_bytes(raw[start : start + 4], "big")
        elif work.operation == BIND:
            work.whole = size >= BIND_SEGMENT.size
            if work.whole:
                work.binding = binding_of(raw[CTRL_SIZE:])
        elif work.operation == REGISTER:
            work.whole = size >= FAST_REG.size
            if work.whole:
                work.registration = registration_of(raw[CTRL_SIZE:], self._read_pages)

    def _read_pages(self, address: int, count: int) -> list[int]:
        """Return the addresses in the page list of a registration, without their flags."""
        raw = self._bus.read(address, count * 8, What.PAGE_LIST, self._qpn)
        return [entry & PAGE_MASK for entry in unpack(f">{count}Q", raw)]


class DatagramReader(EntryReader):
    """The reader of entries of UD queue pairs."""

    def read(self, raw: bytes, index: int) -> SendWork:
        operation, word1, flags, immediate = _control(raw, _DATAGRAMS)
        work = DatagramWork(index, operation)
        _flag(work, word1, flags, immediate)
        if operation == NOP:
            return work
        if len(raw) < _DATAGRAM_END:
            raise WorkError("no datagram segment")
        first, target, qkey = _ADDRESSED.unpack_from(raw, _ADDRESS)
        work.address = raw[_ADDRESS:_ADDRESS_END] + raw[_TAG:_DATAGRAM_END]
        work.address_pd = first & _LOW_24_BITS
        work.target_qpn = target & _LOW_24_BITS
        work.qkey = qkey
        work.own_qkey = qkey & OWN_QKEY != 0
        if operation == LARGE_SEND:
            parse_large_send(work, raw, _DATAGRAM_END, MAX_PAYLOAD)
        else:
            work.checksums = flags >> _CHECKSUMS & _BOTH_CHECKSUMS
            parse_data(work, raw, _DATAGRAM_END)
        return work


class PacketReader(EntryReader):
    """The reader of entries of QP0 and QP1, whose software builds whole packets."""

    def read(self, raw: bytes, index: int) -> SendWork:
        operation, word1, flags, immediate = _control(raw, _DATAGRAMS)
        work = SendWork(index, operation)
        _flag(work, word1, flags, immediate)
        if operation == NOP:
            return work
        if operation == LARGE_SEND:
            raise WorkError("a large send of management datagrams")
        parse_data(work, raw, CTRL_SIZE)
        return work


class FrameReader(EntryReader):
    """The reader of entries of Ethernet queue pairs (Linux `en_tx.c: mlx4_en_xmit`)."""

    def read(self, raw: bytes, index: int) -> SendWork:
        operation, word1, flags, immediate = _control(raw, _FRAMES)
        work = FrameWork(index, operation)
        _flag(work, word1, flags, immediate)
        if operation == NOP:
            return work
        work.tag_type = _TAG_TYPES.get(word1 >> 8 & (INSERT_CVLAN | INSERT_SVLAN), 0)
        work.tag = word1 >> 16
        work.loopback = flags & FORCE_LOOPBACK != 0
        high = flags >> 16
        if high or immediate:
            work.repeated = high.to_bytes(2, "big") + immediate.to_bytes(4, "big")
        if operation == LARGE_SEND:
            parse_large_send(work, raw, CTRL_SIZE, MAX_FRAME)
        else:
            work.checksums = flags >> _CHECKSUMS & _BOTH_CHECKSUMS
            parse_data(work, raw, CTRL_SIZE)
        return work


def _control(raw: bytes, offered: frozenset[int]) -> tuple[int, int, int, int]:
    """Return the operation and the other words of an entry's control segment.

    Raises `WorkError` when it is too short, or has an operation that is not among those `offered`.
    """
    if len(raw) < CTRL_SIZE:
        raise WorkError(f"{len(raw)} bytes")
    word0, word1, flags, immediate = CTRL.unpack_from(raw)
    operation = OPERATIONS[word0 & OPCODE_MASK]
    if operation not in offered:
        raise WorkError(f"opcode {word0 & OPCODE_MASK:#x}")
    return operation, word1, flags, immediate


def _flag(work: SendWork, word1: int, flags: int, immediate: int) -> None:
    work.signalled = flags & _CQE_REQUEST == _CQE_REQUEST
    work.fence = word1 & _FENCE != 0
    work.solicited = flags & _SOLICITED != 0
    work.immediate = immediate


def _remote(work: SendWork, raw: bytes, position: int) -> int:
    end = position + RADDR.size
    if end > len(raw):
        raise WorkError("no remote address segment")
    work.remote_address, work.rkey = RADDR.unpack_from(raw, position)
    return end


def _atomic(work: SendWork, raw: bytes, position: int) -> int:
    layout = MASKED_ATOMIC if work.operation == MASKED_COMPARE_SWAP else ATOMIC
    end = position + layout.size
    if end > len(raw):
        raise WorkError("no atomic segment")
    operands = layout.unpack_from(raw, position)
    if work.operation == MASKED_COMPARE_SWAP:
        work.atomic = operands
    elif work.operation == MASKED_FETCH_ADD:  # add and field boundaries
        work.atomic = (operands[0], 0, operands[1], 0)
    else:
        work.atomic = (operands[0], operands[1], 0, 0)
    return end


def parse_data(work: SendWork, raw: bytes, position: int) -> None:
    """Append the data and inline segments from `position` on; raises `WorkError`."""
    end, total, parts = len(raw), 0, work.parts
    while position + 4 <= end:
        if position + 16 <= end:
            count, lkey, address = SEGMENT.unpack_from(raw, position)
        else:
            count, lkey, address = int.from_bytes(raw[position : position + 4], "big"), 0, 0
        if count & INLINE:
            count &= LENGTH_MASK
            start = position + 4
            if start + count > end:
                raise WorkError(f"{count} inline bytes are more than the entry holds")
            if count:
                parts.append(raw[start : start + count])
            position = (start + count + 15) & ~15
        else:
            if position + 16 > end:
                raise WorkError("half a data segment")
            if count:
                parts.append((lkey, address, count))
            position += 16
        total += count
    work.length = total


def parse_large_send(work: PacketWork, raw: bytes, position: int, limit: int) -> None:
    """Read the segment of a large send and the data behind it.

    Raises `WorkError` for pieces of nothing, or of more than `limit` bytes with their headers.
    """
    start = position + LARGE_SEND_SEGMENT.size
    if len(raw) < start:
        raise WorkError("no segment for the headers of a large send")
    mss, size = LARGE_SEND_SEGMENT.unpack_from(raw, position)
    end = start + size
    if end > len(raw) or not mss or mss + size > limit:
        raise WorkError(f"a large send of {mss} bytes behind {size} bytes of headers")
    parse_data(work, raw, (end + 15) & ~15)
    work.mss, work.header = mss, raw[start:end]


def registration_of(
    segment: bytes, read_pages: Callable[[int, int], Sequence[int]]
) -> Registration:
    """Return the registration that a segment asks for (Linux `ib/qp.c: set_reg_seg`).

    `read_pages` returns so many pages of the list at a guest-physical address.
    """
    flags, key, page_list, start, length, offset, page_shift = FAST_REG.unpack_from(segment)
    rights = flags >> _RIGHTS_SHIFT & _REGISTERED
    pages = partial(read_pages, page_list)
    return Registration(key, start, length, offset, page_shift, rights, pages)


def binding_of(segment: bytes) -> Binding:
    """Return the binding that a segment asks for.

    Linux `mlx4/mr.c: mlx4_mw_enable`, rdma-core `providers/mlx4/qp.c: set_bind_seg`.
    """
    access, kind, rkey, lkey, va, length = BIND_SEGMENT.unpack_from(segment)
    rights = access >> _RIGHTS_SHIFT & _BOUND
    second_type, zero_based = bool(kind & BindFlag.TYPE_2), bool(kind & BindFlag.ZERO_BASED)
    return Binding(rkey, lkey, va, length, rights, second_type=second_type, zero_based=zero_based)


def slots_of(word1: int, stride_shift: int) -> int:
    """Return the number of ring slots that an entry takes; garbage of size 0 takes one."""
    return max(1, ((word1 & DS_MASK) * 16 + (1 << stride_shift) - 1) >> stride_shift)
