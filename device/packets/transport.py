"""Packets of a connection by their values, as engines send and receive them: no addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.net.roce import (
    CONGESTION_SERVICE,
    HEADERS,
    NO_CREDITS,
    PSN_MASK,
    SERVICE_MASK,
)
from bluebridge.device.packets import forms
from bluebridge.device.packets.reader import WirePacket
from bluebridge.device.packets.segmentation import Packet

_MIGRATED: Final = 0x40
_BECN: Final = 1 << 30
_FIELDS: Final = {
    "RETH": {"va": "va", "rkey": "rkey", "length": "length"},
    "AETH": {"syndrome": "syndrome", "msn": "msn"},
    "AtomicETH": {"va": "va", "rkey": "rkey", "swap_or_add": "operand", "compare": "compare"},
    "AtomicAckETH": {"original": "original"},
    "ImmDt": {"value": "immediate"},
    "IETH": {"rkey": "immediate"},
    "XRCETH": {"srqn": "srqn"},
    "CNP": {},
}
"""The attributes of a `TransportPacket` by field of an extended header; immediates share one."""


@dataclass(slots=True)
class TransportPacket:
    """A packet of a connection; `syndrome` of an acknowledgement is 0 whatever its credits are.

    `opcode` is that of the reliable connection for the same operation, `service` what the opcode on
    the wire has more (UC, XRC, CNP). `index` is the entry of the sender's queue that a request is
    of, -1 if it is not known.
    """

    opcode: int
    psn: int
    payload: bytes | memoryview = b""
    ack: bool = False
    solicited: bool = False
    va: int = 0
    rkey: int = 0
    length: int = 0
    syndrome: int = 0
    msn: int = 0
    operand: int = 0
    compare: int = 0
    original: int = 0
    immediate: int = 0
    srqn: int = 0
    service: int = 0
    index: int = -1


def write_transport(packet: TransportPacket, target_qpn: int, pkey: int) -> Packet:
    """Return the packet with its headers as bytes, for `carriers`."""
    flags = packet.solicited << 7 | _MIGRATED | (-len(packet.payload) & 3) << 4
    word = packet.ack << 31 | packet.psn & PSN_MASK
    opcode = packet.opcode + packet.service
    if packet.service == CONGESTION_SERVICE:
        flags, target_qpn = 0, target_qpn | _BECN
    headers = forms.BTH.pack(opcode, flags, pkey, target_qpn, word)
    for header in HEADERS[opcode]:
        values: dict[str, int] = {
            name: getattr(packet, own) for name, own in _FIELDS[header.name].items()
        }
        if header.name == "AETH" and not packet.syndrome:
            values["syndrome"] = NO_CREDITS
        headers += header.pack(values)
    return Packet(headers, bytes(packet.payload), len(packet.payload))


def read_transport(wire: WirePacket) -> TransportPacket:
    """Return the values of a packet of a connection that came off a wire."""
    packet = TransportPacket(
        wire.opcode & ~SERVICE_MASK,
        wire.psn,
        wire.payload,
        ack=wire.ack,
        solicited=wire.solicited,
        service=wire.opcode & SERVICE_MASK,
    )
    for name, values in wire.headers().items():
        for field, own in _FIELDS[name].items():
            setattr(packet, own, values[field])
    if not packet.syndrome >> 5:
        packet.syndrome = 0
    return packet
