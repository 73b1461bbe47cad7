"""RoCE packets in the frames that fault rules meet: what rules match, and their damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.layout.net.ip import UDP
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    GRH_SIZE,
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
    """A packet by what rules ask for; its payload is `frame` from `start` to `end`."""

    frame: bytes
    opcode: int
    target_qpn: int
    psn: int
    start: int
    end: int

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
    end = _end(frame, at) - ICRC_SIZE - (flags >> 4 & 3)
    if not start <= end <= len(frame):
        return None
    return RocePacket(frame, opcode, target & PSN_MASK, word & PSN_MASK, start, end)


def _end(frame: bytes, at: int) -> int:
    """Return where the ICRC ends, which the header in front of the BTH says."""
    if carrier_of(frame) == GRH_SIZE:
        return at + int.from_bytes(frame[at - GRH_SIZE + 4 : at - GRH_SIZE + 6], "big")
    return at - UDP.size + int.from_bytes(frame[at - 4 : at - 2], "big")


def damaged(packet: RocePacket, *, mended: bool) -> bytes:
    """Return the frame with one bit wrong, in its payload if it has any.

    With `mended` the check sums are right again, so that nobody below the payload can tell.
    """
    frame = bytearray(packet.frame)
    place = packet.start if packet.start < packet.end else packet.start - 1
    frame[place] ^= 1
    if not mended:
        return bytes(frame)
    at = transport_at(packet.frame)
    end = _end(packet.frame, at) - ICRC_SIZE
    carrier = carrier_of(packet.frame)
    if carrier == GRH_SIZE:
        before = crc.before_roce_v1(bytes(frame[at - GRH_SIZE : at]))
    else:
        frame[at - _UDP_CHECKSUM : at] = bytes(_UDP_CHECKSUM)
        ip = at - carrier
        before = crc.before_roce_v2(
            bytes(frame[ip : at - UDP.size]), bytes(frame[at - UDP.size : at])
        )
    frame[end : end + ICRC_SIZE] = crc.invariant(before, bytes(frame[at:end]))
    return bytes(frame)
