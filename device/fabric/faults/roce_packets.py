"""RoCE packets in the frames that fault rules meet: what rules match, and their damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.layout.net.ethernet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE
from bluebridge.device.layout.net.ip import IPV4, IPV6, UDP, ones_complement_sum
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    GRH,
    HEADERS,
    ICRC_SIZE,
    PSN_MASK,
    SERVICE_MASK,
    BthOpcode,
)
from bluebridge.device.packets import crc, forms
from bluebridge.device.packets.reader import carrier_of, transport_at

NAMES: Final = {int(code): code.name.partition("_")[2] for code in BthOpcode if code < SERVICE_MASK}
"""Names of the operations of packets, by the low bits of an opcode of a connection."""
NETWORKS: Final = {ETHERTYPE_IPV4: IPV4, ETHERTYPE_IPV6: IPV6, ETHERTYPE_ROCE: GRH}
"""The network headers of packets, by Ethertype."""
DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)
_ANSWERS: Final = range(BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_ATOMIC_ACK + 1)
_BEGINS: Final = frozenset(
    int(code)
    for code in BthOpcode
    if not code.name.endswith(("_MIDDLE", "_LAST", "_LAST_IMM", "_LAST_INV"))
)
_UDP_CHECKSUM: Final = 2
"""Bytes from the UDP checksum to the BTH."""


@dataclass(frozen=True, slots=True)
class RocePacket:
    """A packet by what rules ask for; its payload is `frame` from `start` to `end`.

    Its network header, of the Ethertype `kind`, begins at `network`, its BTH at `transport`.
    """

    frame: bytes
    network: int
    transport: int
    opcode: int
    target_qpn: int
    psn: int
    start: int
    end: int

    @property
    def kind(self) -> int:
        """The Ethertype, one of `NETWORKS`."""
        return _kind(self.frame, self.network)

    @property
    def name(self) -> str:
        """The operation, such as WRITE_MIDDLE, whatever the service."""
        if self.opcode in DATAGRAMS or self.opcode == BthOpcode.CNP:
            return BthOpcode(self.opcode).name.removeprefix("UD_")
        return NAMES.get(self.opcode & ~SERVICE_MASK, "")

    @property
    def connected(self) -> bool:
        """True for a packet of RC, UC or XRC."""
        return self.opcode not in DATAGRAMS and self.opcode != BthOpcode.CNP

    @property
    def answers(self) -> bool:
        """True for what a responder sends."""
        return self.connected and self.opcode & ~SERVICE_MASK in _ANSWERS

    @property
    def begins(self) -> bool:
        """True for the first or only packet of a message."""
        return self.opcode & ~SERVICE_MASK in _BEGINS

    @property
    def payload(self) -> bytes:
        """The bytes that it brings."""
        return self.frame[self.start : self.end]


def _kind(frame: bytes, network: int) -> int:
    return int.from_bytes(frame[network - 2 : network], "big")


def packet_of(message: Message) -> RocePacket | None:
    """Return the packet that a message is on a wire of packets, None for anything else."""
    if not isinstance(message, Frames) or len(message.trains) != 1:
        return None
    frames = message.trains[0].frames
    at = transport_at(frames[0]) if len(frames) == 1 else 0
    return _read(frames[0], at) if at else None


def _read(frame: bytes, at: int) -> RocePacket | None:
    if len(frame) < at + BTH_SIZE + ICRC_SIZE:
        return None
    opcode, flags, _, target, word = forms.BTH.unpack_from(frame, at)
    headers = HEADERS.get(opcode)
    if headers is None:
        return None
    start = at + BTH_SIZE + sum(header.size for header in headers)
    network = at - carrier_of(frame)
    end = _icrc(frame, network, at) - (flags >> 4 & 3)
    if not start <= end <= len(frame):
        return None
    return RocePacket(frame, network, at, opcode, target & PSN_MASK, word & PSN_MASK, start, end)


def _icrc(frame: bytes, network: int, at: int) -> int:
    """Return where the ICRC begins, which the header in front of the BTH says."""
    if _kind(frame, network) == ETHERTYPE_ROCE:
        return at + GRH.get(frame, "payload_length", network) - ICRC_SIZE
    return at - UDP.size + UDP.get(frame, "length", at - UDP.size) - ICRC_SIZE


def damaged(packet: RocePacket, *, hidden: bool) -> bytes:
    """Return the frame with one bit wrong, in its payload if it has any.

    If it is `hidden`, the check sums are right again, so that nobody below the payload can tell.
    """
    frame = bytearray(packet.frame)
    place = packet.start if packet.start < packet.end else packet.start - 1
    frame[place] ^= 1
    return mended(packet, frame) if hidden else bytes(frame)


def mended(packet: RocePacket, frame: bytearray) -> bytes:
    """Return `frame`, in which values of a packet were changed, with the check sums they ask for.

    Those are the ICRC and that of IPv4; a UDP checksum becomes 0, which stands for none. Where they
    are is what the packet said before.
    """
    at = packet.transport
    icrc = _icrc(packet.frame, packet.network, at)
    if packet.kind == ETHERTYPE_ROCE:
        before = crc.before_roce_v1(bytes(frame[packet.network : at]))
    else:
        ip, udp = slice(packet.network, at - UDP.size), slice(at - UDP.size, at)
        frame[at - _UDP_CHECKSUM : at] = bytes(_UDP_CHECKSUM)
        if packet.kind == ETHERTYPE_IPV4:
            IPV4.set(frame, "checksum", 0, ip.start)
            IPV4.set(frame, "checksum", ones_complement_sum(bytes(frame[ip])), ip.start)
        before = crc.before_roce_v2(bytes(frame[ip]), bytes(frame[udp]))
    frame[icrc : icrc + ICRC_SIZE] = crc.invariant(before, bytes(frame[at:icrc]))
    return bytes(frame)
