"""Cuts a message into the packets of its path MTU: transport headers and payload.

Sequences: InfiniBand vol. 1, 9.3 (headers), 9.4 and 9.5 (operations), 9.7.5 (acknowledgements).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.roce import (
    ATOMICS,
    BTH,
    GSI_QPN,
    HEADERS,
    MTU_BYTES,
    NO_CREDITS,
    PSN_MASK,
    RELIABLE_SERVICE,
    UNRELIABLE_SERVICE,
    XRC_SERVICE,
    BthOpcode,
    Op,
    Syndrome,
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
from bluebridge.device.packets.message import IMMEDIATE as HAS_IMMEDIATE

_ENDS: Final[dict[int, tuple[int, int]]] = {
    Op.SEND: (BthOpcode.RC_SEND_LAST, BthOpcode.RC_SEND_ONLY),
    Op.SEND_IMM: (BthOpcode.RC_SEND_LAST_IMM, BthOpcode.RC_SEND_ONLY_IMM),
    Op.SEND_INV: (BthOpcode.RC_SEND_LAST_INV, BthOpcode.RC_SEND_ONLY_INV),
    Op.WRITE: (BthOpcode.RC_WRITE_LAST, BthOpcode.RC_WRITE_ONLY),
    Op.WRITE_IMM: (BthOpcode.RC_WRITE_LAST_IMM, BthOpcode.RC_WRITE_ONLY_IMM),
    Op.COMPARE_SWAP: (BthOpcode.RC_COMPARE_SWAP, BthOpcode.RC_COMPARE_SWAP),
    Op.FETCH_ADD: (BthOpcode.RC_FETCH_ADD, BthOpcode.RC_FETCH_ADD),
}
"""Opcodes of the last packet of several, and of the only one, by `Op`."""
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
        yield Packet(_headers(message, BthOpcode.RC_READ_REQUEST, ack=True))
    elif message.op in ATOMICS:
        yield _atomic(message)
    else:
        yield from _pieces(message)


def _headers(
    message: WireMessage,
    opcode: int,
    index: int = 0,
    *,
    ack: bool = False,
    solicited: bool = False,
    length: int = 0,
) -> bytes:
    """Return BTH and extended headers of packet `index` of a message, with `length` bytes.

    A queue pair is in the state "migrated" from the start, only the packets of QP1, which software
    builds, do not say so (Linux `ib/qp.c: __mlx4_ib_modify_qp`, `core/ud_header.c`).
    """
    gsi = message.what == What.DATAGRAM and message.source_qpn <= GSI_QPN
    opcode += _service(message)
    if opcode not in HEADERS:
        raise PacketError(f"no packet has the opcode {opcode:#x}")
    headers = BTH.pack(
        opcode=opcode,
        solicited=int(solicited),
        migrated=int(not gsi),
        pad=-length & 3,
        pkey=message.pkey,
        dest_qpn=message.target_qpn & PSN_MASK,
        ack_request=int(ack),
        psn=(message.psn + index) & PSN_MASK,
    )
    for header in HEADERS[opcode]:
        headers += header.pack(_VALUES[header.name](message))
    return bytes(headers)


def _aeth(message: WireMessage) -> dict[str, int]:
    syndrome = message.syndrome
    credit = NO_CREDITS if syndrome == Syndrome.ACK else syndrome
    return {"syndrome": credit, "msn": message.key & PSN_MASK}


_VALUES: Final[dict[str, Callable[[WireMessage], dict[str, int]]]] = {
    "DETH": lambda it: {"qkey": it.key, "source_qpn": it.source_qpn & PSN_MASK},
    "XRCETH": lambda it: {"srqn": it.srqn & PSN_MASK},
    "RETH": lambda it: {"va": it.address, "rkey": it.key, "length": it.length},
    "AETH": _aeth,
    "AtomicETH": lambda it: {
        "va": it.address, "rkey": it.key, "swap_or_add": it.atomic[0], "compare": it.atomic[1],
    },
    "AtomicAckETH": lambda it: {"original": it.address},
    "ImmDt": lambda it: {"value": it.immediate},
    "IETH": lambda it: {"rkey": it.immediate},
}  # fmt: skip
"""What a message puts into each extended header."""


def _service(message: WireMessage) -> int:
    """Return the difference of a service's opcodes to those of the reliable connection."""
    if message.what == What.DATAGRAM:
        return 0  # has opcodes of its own
    if message.flags & XRC:
        return XRC_SERVICE
    return RELIABLE_SERVICE if message.flags & RELIABLE else UNRELIABLE_SERVICE


def _datagram(message: WireMessage) -> Packet:
    immediate = bool(message.flags & HAS_IMMEDIATE)
    opcode = BthOpcode.UD_SEND_ONLY_IMM if immediate else BthOpcode.UD_SEND_ONLY
    solicited = bool(message.flags & SOLICITED)
    headers = _headers(message, opcode, solicited=solicited, length=message.length)
    return Packet(headers, message.part(0, message.length), message.length)


def _atomic(message: WireMessage) -> Packet:
    """Return the packet of an atomic; masked ones have no standard opcode."""
    swap = message.op in _SWAPS
    opcode = BthOpcode.RC_COMPARE_SWAP if swap else BthOpcode.RC_FETCH_ADD
    comment = ""
    if message.op in _MASKED:
        masks = message.atomic[2:]
        comment = f"masked atomic, masks {masks[0]:#x} and {masks[1]:#x}, shown as its plain kind"
    return Packet(_headers(message, opcode, ack=True), comment=comment)


def _response(message: WireMessage) -> Iterator[Packet]:
    if message.flags & READ:
        yield from _read_data(message)
    elif message.flags & ATOMIC:
        yield Packet(_headers(message, BthOpcode.RC_ATOMIC_ACK))
    else:
        # an acknowledgement names the last packet it covers, a refusal the first
        last = 0 if message.syndrome else message.packets - 1
        yield Packet(_headers(message, BthOpcode.RC_ACK, last))


def _read_data(message: WireMessage) -> Iterator[Packet]:
    for index, offset, length in _cut(message):
        opcode = read_response_of(index, message.packets)
        headers = _headers(message, opcode, index, length=length)
        yield Packet(headers, message.part(offset, length), length)


def _pieces(message: WireMessage) -> Iterator[Packet]:
    """Yield the packets of a SEND or a WRITE."""
    reliable = bool(message.flags & RELIABLE)
    last = message.packets - 1
    for index, offset, length in _cut(message):
        at_end = index == last
        notify = at_end and message.op != Op.WRITE and bool(message.flags & SOLICITED)
        headers = _headers(
            message,
            opcode_of(message.op, index, message.packets),
            index,
            ack=at_end and reliable,
            solicited=notify,
            length=length,
        )
        yield Packet(headers, message.part(offset, length), length)


def opcode_of(op: int, index: int, packets: int) -> int:
    """Return the opcode of packet `index` of a request that is no READ (`Op`) in `packets`."""
    last, only = _ENDS[op]
    if packets == 1:
        return only
    if index == packets - 1:
        return last
    first = BthOpcode.RC_SEND_FIRST if op <= Op.SEND_INV else BthOpcode.RC_WRITE_FIRST
    return first if not index else first + 1


def read_response_of(index: int, packets: int) -> int:
    """Return the opcode of packet `index` of the `packets` that answer a READ."""
    if packets == 1:
        return BthOpcode.RC_READ_RESPONSE_ONLY
    if not index:
        return BthOpcode.RC_READ_RESPONSE_FIRST
    if index == packets - 1:
        return BthOpcode.RC_READ_RESPONSE_LAST
    return BthOpcode.RC_READ_RESPONSE_MIDDLE


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
