"""Cuts a message into the packets of its path MTU: transport headers and payload.

Sequences: InfiniBand vol. 1, 9.3 (headers), 9.4 and 9.5 (operations), 9.7.5 (acknowledgements).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.operations import ATOMICS, Op, Syndrome
from bluebridge.device.layout.net.roce import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    BTH,
    DETH,
    GSI_QPN,
    IETH,
    IMMEDIATE,
    MTU_BYTES,
    PSN_MASK,
    RELIABLE_SERVICE,
    RETH,
    UNRELIABLE_SERVICE,
    XRC_ETH,
    XRC_SERVICE,
    BthOpcode,
)
from bluebridge.device.packets.message import (
    ATOMIC,
    READ,
    RELIABLE,
    SOLICITED,
    XRC,
    PacketError,
    WireMessage,
)
from bluebridge.device.packets.message import (
    IMMEDIATE as HAS_IMMEDIATE,
)

NO_CREDITS: Final = 0x1F
"""AETH credit code of a responder that does not count credits (9.7.7.2.3)."""

_SENDS: Final = (Op.SEND, Op.SEND_IMM, Op.SEND_INV)
_ENDS: Final = {  # opcodes of the last packet of several, and of the only one
    Op.SEND: (BthOpcode.RC_SEND_LAST, BthOpcode.RC_SEND_ONLY),
    Op.SEND_IMM: (BthOpcode.RC_SEND_LAST_IMM, BthOpcode.RC_SEND_ONLY_IMM),
    Op.SEND_INV: (BthOpcode.RC_SEND_LAST_INV, BthOpcode.RC_SEND_ONLY_INV),
    Op.WRITE: (BthOpcode.RC_WRITE_LAST, BthOpcode.RC_WRITE_ONLY),
    Op.WRITE_IMM: (BthOpcode.RC_WRITE_LAST_IMM, BthOpcode.RC_WRITE_ONLY_IMM),
}
_SWAPS: Final = (Op.COMPARE_SWAP, Op.MASKED_COMPARE_SWAP)
_MASKED: Final = (Op.MASKED_COMPARE_SWAP, Op.MASKED_FETCH_ADD)


@dataclass(slots=True)
class Packet:
    """A packet from its BTH on: `length` bytes of payload, of which `payload` was captured."""

    headers: bytes
    payload: bytes = b""
    length: int = 0
    comment: str = ""

    @property
    def pad(self) -> int:
        """The number of bytes that fill the payload up to a multiple of four."""
        return -self.length & 3

    @property
    def whole(self) -> bool:
        """True if all of the payload was captured."""
        return len(self.payload) == self.length


def packets_of(message: WireMessage) -> Iterator[Packet]:
    """Yield the packets of a message that is no Ethernet frame; raises `PacketError`."""
    if message.what == What.DATAGRAM:
        yield _datagram(message)
    elif message.what == What.RESPONSE:
        yield from _response(message)
    elif message.op == Op.READ:
        reth = RETH.pack(va=message.address, rkey=message.key, length=message.length)
        yield Packet(_ask(message, BthOpcode.RC_READ_REQUEST, 0, ack=True) + reth)
    elif message.op in ATOMICS:
        yield _atomic(message)
    else:
        yield from _pieces(message)


def _bth(
    message: WireMessage,
    opcode: int,
    index: int,
    *,
    ack: bool = False,
    solicited: bool = False,
    length: int = 0,
) -> bytes:
    """Return the BTH of packet `index` of a message, which carries `length` bytes.

    A queue pair is in the state "migrated" from the start, only the packets of QP1, which software
    builds, do not say so (Linux `ib/qp.c: __mlx4_ib_modify_qp`, `core/ud_header.c`).
    """
    gsi = message.what == What.DATAGRAM and message.source_qpn <= GSI_QPN
    return bytes(
        BTH.pack(
            opcode=opcode + _service(message),
            solicited=int(solicited),
            migrated=int(not gsi),
            pad=-length & 3,
            pkey=message.pkey,
            dest_qpn=message.target_qpn & PSN_MASK,
            ack_request=int(ack),
            psn=message.psn + index & PSN_MASK,
        )
    )


def _service(message: WireMessage) -> int:
    """Return the difference of a service's opcodes to those of the reliable connection."""
    if message.what == What.DATAGRAM:
        return 0  # has opcodes of its own
    if message.flags & XRC:
        return XRC_SERVICE
    return RELIABLE_SERVICE if message.flags & RELIABLE else UNRELIABLE_SERVICE


def _ask(
    message: WireMessage,
    opcode: int,
    index: int,
    *,
    ack: bool,
    solicited: bool = False,
    length: int = 0,
) -> bytes:
    """Return the BTH of a request, followed by the number of its SRQ if the service is XRC."""
    headers = _bth(message, opcode, index, ack=ack, solicited=solicited, length=length)
    if message.flags & XRC:
        headers += XRC_ETH.pack(srqn=message.srqn & PSN_MASK)
    return headers


def _datagram(message: WireMessage) -> Packet:
    immediate = bool(message.flags & HAS_IMMEDIATE)
    opcode = BthOpcode.UD_SEND_ONLY_IMM if immediate else BthOpcode.UD_SEND_ONLY
    solicited = bool(message.flags & SOLICITED)
    headers = _bth(message, opcode, 0, solicited=solicited, length=message.length)
    headers += DETH.pack(qkey=message.key, source_qpn=message.source_qpn & PSN_MASK)
    if immediate:
        headers += IMMEDIATE.pack(value=message.immediate)
    return Packet(headers, message.payload, message.length)


def _atomic(message: WireMessage) -> Packet:
    """Return the packet of an atomic; masked ones have no standard opcode."""
    change, compare, *masks = message.atomic
    swap = message.op in _SWAPS
    opcode = BthOpcode.RC_COMPARE_SWAP if swap else BthOpcode.RC_FETCH_ADD
    operands = ATOMIC_ETH.pack(
        va=message.address, rkey=message.key, swap_or_add=change, compare=compare
    )
    comment = ""
    if message.op in _MASKED:
        comment = f"masked atomic, masks {masks[0]:#x} and {masks[1]:#x}, shown as its plain kind"
    return Packet(_ask(message, opcode, 0, ack=True) + operands, comment=comment)


def _response(message: WireMessage) -> Iterator[Packet]:
    if message.flags & READ:
        yield from _read_data(message)
    elif message.flags & ATOMIC:
        original = ATOMIC_ACK_ETH.pack(original=message.address)
        yield Packet(_bth(message, BthOpcode.RC_ATOMIC_ACK, 0) + _aeth(message) + original)
    else:
        # an acknowledgement names the last packet it covers, a refusal the first
        last = 0 if message.syndrome else message.packets - 1
        yield Packet(_bth(message, BthOpcode.RC_ACK, last) + _aeth(message))


def _aeth(message: WireMessage) -> bytes:
    syndrome = message.syndrome
    credit = NO_CREDITS if syndrome == Syndrome.ACK else syndrome
    return bytes(AETH.pack(syndrome=credit, msn=message.key & PSN_MASK))


def _read_data(message: WireMessage) -> Iterator[Packet]:
    last = message.packets - 1
    for index, offset, length in _cut(message):
        if not last:
            opcode = BthOpcode.RC_READ_RESPONSE_ONLY
        elif not index:
            opcode = BthOpcode.RC_READ_RESPONSE_FIRST
        elif index == last:
            opcode = BthOpcode.RC_READ_RESPONSE_LAST
        else:
            opcode = BthOpcode.RC_READ_RESPONSE_MIDDLE
        headers = _bth(message, opcode, index, length=length)
        if index in (0, last):
            headers += _aeth(message)
        yield Packet(headers, message.payload[offset : offset + length], length)


def _pieces(message: WireMessage) -> Iterator[Packet]:
    """Yield the packets of a SEND or a WRITE."""
    reliable = bool(message.flags & RELIABLE)
    last = message.packets - 1
    for index, offset, length in _cut(message):
        opcode = _opcode(message, index)
        at_end = index == last
        notify = at_end and message.op != Op.WRITE and bool(message.flags & SOLICITED)
        headers = _ask(
            message, opcode, index, ack=at_end and reliable, solicited=notify, length=length
        )
        if not index and message.op not in _SENDS:
            headers += RETH.pack(va=message.address, rkey=message.key, length=message.length)
        if at_end and message.op in (Op.SEND_IMM, Op.WRITE_IMM):
            headers += IMMEDIATE.pack(value=message.immediate)
        elif at_end and message.op == Op.SEND_INV:
            headers += IETH.pack(rkey=message.immediate)
        yield Packet(headers, message.payload[offset : offset + length], length)


def _opcode(message: WireMessage, index: int) -> int:
    last, only = _ENDS[message.op]
    if message.packets == 1:
        return only
    if index == message.packets - 1:
        return last
    first = BthOpcode.RC_SEND_FIRST if message.op in _SENDS else BthOpcode.RC_WRITE_FIRST
    return first if not index else first + 1


def _cut(message: WireMessage) -> Iterator[tuple[int, int, int]]:
    """Yield index, offset and length of each packet's share of the payload."""
    mtu = mtu_of(message)
    for index in range(message.packets):
        yield index, index * mtu, min(mtu, message.length - index * mtu)


def mtu_of(message: WireMessage) -> int:
    """Return the path MTU that makes so many packets of the message; raises `PacketError`.

    For several packets it is the only one, since half of it would make more of them.
    """
    for mtu in sorted(MTU_BYTES.values()):
        if ((message.length + mtu - 1) // mtu or 1) == message.packets:
            return mtu
    raise PacketError(f"{message.length} bytes in {message.packets} packets")
