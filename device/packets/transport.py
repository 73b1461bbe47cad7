"""Packets of a connection by their values, as engines send and receive them: no addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    CONGESTION_SERVICE,
    HEADERS,
    NO_CREDITS,
    PSN_MASK,
    SERVICE_MASK,
)
from bluebridge.device.packets import forms
from bluebridge.device.packets.reader import BTH_WORD, WirePacket
from bluebridge.device.packets.segmentation import Packet

_MIGRATED: Final = 0x40
_BECN: Final = 1 << 30
_NAMES: Final = {
    int(opcode): tuple(header.name for header in headers) for opcode, headers in HEADERS.items()
}
"""The extended headers of a packet, by opcode."""


@dataclass(slots=True, init=False)
class TransportPacket:
    """A packet of a connection; `syndrome` of an acknowledgement is 0 whatever its credits are.

    `opcode` is that of the reliable connection for the same operation, `service` what the opcode on
    the wire has more (UC, XRC, CNP). `index` is the entry of the sender's queue that a request is
    of, -1 if it is not known.

    It stands for a run of packets if there is `more`: payloads of those that follow, with the same
    headers and PSNs one later each. `ack` is of the last one then.
    """

    opcode: int
    psn: int
    payload: bytes | memoryview
    ack: bool
    solicited: bool
    va: int
    rkey: int
    length: int
    syndrome: int
    msn: int
    operand: int
    compare: int
    original: int
    immediate: int
    srqn: int
    service: int
    index: int
    more: Sequence[bytes | memoryview]

    # Written out: what dataclass would make is not compiled.
    def __init__(
        self,
        opcode: int,
        psn: int,
        payload: bytes | memoryview = b"",
        ack: bool = False,
        solicited: bool = False,
        va: int = 0,
        rkey: int = 0,
        length: int = 0,
        syndrome: int = 0,
        msn: int = 0,
        operand: int = 0,
        compare: int = 0,
        original: int = 0,
        immediate: int = 0,
        srqn: int = 0,
        service: int = 0,
        index: int = -1,
        more: Sequence[bytes | memoryview] = (),
    ) -> None:
        self.opcode = opcode
        self.psn = psn
        self.payload = payload
        self.ack = ack
        self.solicited = solicited
        self.va = va
        self.rkey = rkey
        self.length = length
        self.syndrome = syndrome
        self.msn = msn
        self.operand = operand
        self.compare = compare
        self.original = original
        self.immediate = immediate
        self.srqn = srqn
        self.service = service
        self.index = index
        self.more = more

    def apart(self) -> list[TransportPacket]:
        """Return the packets of a run one by one; this one is the first of them then."""
        more, self.more = self.more, ()
        found = [self]
        for payload in more:
            psn = (found[-1].psn + 1) & PSN_MASK
            found.append(
                TransportPacket(
                    self.opcode,
                    psn,
                    payload,
                    srqn=self.srqn,
                    service=self.service,
                    index=self.index,
                )
            )
        found[-1].ack, found[0].ack = self.ack, self.ack and not more
        return found


def write_headers(packet: TransportPacket, target_qpn: int, pkey: int) -> list[bytes]:
    """Return a packet from its BTH to its payload, and the others of a run."""
    flags = (packet.solicited << 7) | _MIGRATED | ((-len(packet.payload) & 3) << 4)
    opcode = packet.opcode + packet.service
    if packet.service == CONGESTION_SERVICE:
        flags, target_qpn = 0, target_qpn | _BECN
    psn, ack, count = packet.psn, packet.ack << 31, len(packet.more)
    word = (psn & PSN_MASK) | (0 if count else ack)
    headers = forms.BTH.pack(opcode, flags, pkey, target_qpn, word)
    for name in _NAMES[opcode]:
        headers += _extended(packet, name)
    found = [headers]
    if count:
        before, after, pack = headers[:BTH_WORD], headers[BTH_SIZE:], forms.WORD.pack
        for number in range(1, count + 1):
            word = ((psn + number) & PSN_MASK) | (ack if number == count else 0)
            found.append(before + pack(word) + after)
    return found


def _extended(packet: TransportPacket, name: str) -> bytes:
    if name == "RETH":
        return forms.RETH.pack(packet.va, packet.rkey, packet.length)
    if name == "AETH":
        syndrome = packet.syndrome or NO_CREDITS
        return forms.AETH.pack((syndrome << 24) | (packet.msn & PSN_MASK))
    if name == "AtomicETH":
        return forms.ATOMIC_ETH.pack(packet.va, packet.rkey, packet.operand, packet.compare)
    if name == "AtomicAckETH":
        return forms.ATOMIC_ACK_ETH.pack(packet.original)
    if name == "XRCETH":
        return forms.WORD.pack(packet.srqn & PSN_MASK)
    return forms.CNP if name == "CNP" else forms.WORD.pack(packet.immediate)


def write_transport(packet: TransportPacket, target_qpn: int, pkey: int) -> Packet:
    """Return the packet with its headers as bytes, for `carriers`; it is no run."""
    (headers,) = write_headers(packet, target_qpn, pkey)
    return Packet(headers, bytes(packet.payload), len(packet.payload))


def read_transport(wire: WirePacket) -> TransportPacket:
    """Return the values of a packet of a connection that came off a wire."""
    packet = TransportPacket(
        wire.opcode & ~SERVICE_MASK,
        wire.psn,
        wire.payload,
        wire.ack,
        wire.solicited,
        service=wire.opcode & SERVICE_MASK,
    )
    frame, at = wire.frame, wire.extended
    for name in _NAMES[wire.opcode]:
        at = _read_extended(packet, name, frame, at)
    if not packet.syndrome >> 5:
        packet.syndrome = 0
    return packet


def _read_extended(packet: TransportPacket, name: str, frame: bytes, at: int) -> int:
    """Read an extended header at `at`; returns where the next one begins."""
    if name == "RETH":
        packet.va, packet.rkey, packet.length = forms.RETH.unpack_from(frame, at)
        return at + forms.RETH.size
    if name == "AtomicETH":
        found = forms.ATOMIC_ETH.unpack_from(frame, at)
        packet.va, packet.rkey, packet.operand, packet.compare = found
        return at + forms.ATOMIC_ETH.size
    if name == "AtomicAckETH":
        (packet.original,) = forms.ATOMIC_ACK_ETH.unpack_from(frame, at)
        return at + forms.ATOMIC_ACK_ETH.size
    if name == "CNP":
        return at + len(forms.CNP)
    (word,) = forms.WORD.unpack_from(frame, at)
    if name == "AETH":
        packet.syndrome, packet.msn = word >> 24, word & PSN_MASK
    elif name == "XRCETH":
        packet.srqn = word & PSN_MASK
    else:
        packet.immediate = word
    return at + forms.WORD.size
