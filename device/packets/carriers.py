"""The carriers of packets: RoCE v1, RoCE v2, or the link layer of InfiniBand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import error as StructError
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.ib.link import LRH, LRH_SIZE, MANAGEMENT_LANE, NEXT_BTH, NEXT_GRH
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    MIN_FRAME,
    NO_VLAN,
)
from bluebridge.device.layout.net.ip import (
    FIRST_SOURCE_PORT,
    IPV4,
    IPV4_MAPPED,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
    source_port,
)
from bluebridge.device.layout.net.roce import GRH_NEXT_BTH, GSI_QPN, ICRC_SIZE
from bluebridge.device.packets import crc, forms
from bluebridge.device.packets.message import INFINIBAND, PacketError, WireMessage
from bluebridge.device.packets.segmentation import Packet, packets_of

LINKTYPE_ETHERNET: Final = 1
LINKTYPE_ERF: Final = 197
"""Endace's record format, which names InfiniBand: tshark shows the bare link type as mere data."""
VCRC_SIZE: Final = 2
_SUBNET_QPN: Final = 0
_MOST_BYTES: Final = 0xFFFF - IPV4.size


@dataclass(slots=True)
class Frame:
    """One packet on the wire: `length` bytes, of which `data` are known from the start on.

    The data begin with the Ethernet header or the LRH.
    """

    link: int
    data: bytes
    length: int
    comment: str = ""


def frames_of(message: WireMessage, roce: int | None = None) -> Iterator[Frame]:
    """Yield the frames of a message in order; `roce` forces a RoCE version on all RDMA packets.

    Raises `PacketError` when the message makes no sense.
    """
    if message.what == What.FRAME:
        yield Frame(LINKTYPE_ETHERNET, message.payload, message.length)
        return
    try:
        for packet in packets_of(message):
            yield carried(message, packet, message.form if message.form == INFINIBAND else roce)
    except (ValueError, StructError) as error:  # a damaged record: more than a field can hold
        raise PacketError(str(error)) from error


def carried(message: WireMessage, packet: Packet, form: int | None = None) -> Frame:
    """Return the frame of one packet, with the addresses of `message`, in its form or another."""
    form = message.form if form is None else form
    if form == INFINIBAND:
        return _infiniband(message, packet)
    return _roce_v1(message, packet) if form == 1 else _roce_v2(message, packet)


def _roce_v1(message: WireMessage, packet: Packet) -> Frame:
    grh = _grh(message, _size(packet), GRH_NEXT_BTH)
    transport = _transport(packet)
    icrc = crc.invariant(crc.before_roce_v1(grh), transport)
    return _ethernet(message, packet, ETHERTYPE_ROCE, grh, transport + icrc)


def _roce_v2(message: WireMessage, packet: Packet) -> Frame:
    """Return a packet as RoCE v2: over IPv4 between IPv4-mapped GIDs, else over IPv6."""
    size = UDP.size + _size(packet)
    if size > _MOST_BYTES:
        raise PacketError(f"{packet.length} bytes in one packet")
    udp = bytearray(forms.UDP.pack(_source_port(message), ROCE_PORT, size, 0))
    if message.sgid.startswith(IPV4_MAPPED) and message.dgid.startswith(IPV4_MAPPED):
        kind = ETHERTYPE_IPV4
        ip = forms.ipv4(
            message.traffic_class & 0xFF,
            IPV4.size + size,
            message.hop_limit & 0xFF,
            message.sgid[12:],
            message.dgid[12:],
        )
    else:
        kind, ip = ETHERTYPE_IPV6, _grh(message, size, PROTOCOL_UDP)
    transport = _transport(packet)
    transport += crc.invariant(crc.before_roce_v2(ip, bytes(udp)), transport)
    if kind == ETHERTYPE_IPV6:
        UDP.set(udp, "checksum", _udp_checksum(message, bytes(udp) + transport))
    return _ethernet(message, packet, kind, ip + udp, transport)


def _source_port(message: WireMessage) -> int:
    if message.udp_port:
        return message.udp_port
    if message.what == What.DATAGRAM and message.source_qpn <= GSI_QPN:
        return FIRST_SOURCE_PORT
    return source_port(message.source_qpn, message.target_qpn)


def _udp_checksum(message: WireMessage, datagram: bytes) -> int:
    """Return the UDP checksum over IPv6, where most readers count 0 as an error.

    RoCE adapters write 0. Bytes that were not captured count as zeros.
    """
    length = UDP.get(datagram, "length")
    pseudo = (
        message.sgid + message.dgid + length.to_bytes(4, "big") + bytes((0, 0, 0, PROTOCOL_UDP))
    )
    return ones_complement_sum(pseudo + datagram) or 0xFFFF


def _grh(message: WireMessage, length: int, following: int) -> bytes:
    return forms.grh(
        message.traffic_class & 0xFF,
        message.flow_label & 0xFFFFF,
        length,
        following,
        message.hop_limit & 0xFF,
        message.sgid,
        message.dgid,
    )


def _infiniband(message: WireMessage, packet: Packet) -> Frame:
    """Return a packet of the InfiniBand link layer; with zero GIDs it has no GRH."""
    grh = _grh(message, _size(packet), GRH_NEXT_BTH) if any(message.dgid) else b""
    length = LRH_SIZE + len(grh) + _size(packet)
    management = message.what == What.DATAGRAM and message.target_qpn == _SUBNET_QPN
    lrh = bytes(
        LRH.pack(
            virtual_lane=MANAGEMENT_LANE if management else 0,
            service_level=message.service_level,
            next_header=NEXT_GRH if grh else NEXT_BTH,
            dlid=int.from_bytes(message.destination, "big"),
            length=length // 4,
            slid=int.from_bytes(message.source, "big"),
        )
    )
    data = lrh + grh + _transport(packet)
    if packet.whole:
        data += crc.invariant(crc.before_infiniband(lrh, grh), _transport(packet))
        data += crc.variant(data)
    return Frame(LINKTYPE_ERF, data, length + VCRC_SIZE, packet.comment)


def _size(packet: Packet) -> int:
    """Return the number of bytes from the BTH to the end of the ICRC."""
    return len(packet.headers) + packet.length + packet.pad + ICRC_SIZE


def _transport(packet: Packet) -> bytes:
    """Return the known bytes of a packet from the BTH to its padding."""
    return packet.headers + packet.payload + bytes(packet.pad * packet.whole)


def _ethernet(
    message: WireMessage, packet: Packet, kind: int, network: bytes, transport: bytes
) -> Frame:
    """Return an Ethernet frame; if its payload was cut, it ends with the bytes that are known."""
    ethernet = message.destination + message.source + kind.to_bytes(2, "big")
    if message.vlan != NO_VLAN:
        tag = ETHERTYPE_VLAN << 16 | message.service_level << 13 & 0xE000 | message.vlan & 0xFFF
        ethernet = ethernet[:12] + tag.to_bytes(4, "big") + ethernet[12:]
    head = ethernet + network
    length = max(len(head) + _size(packet), MIN_FRAME)
    if packet.whole:
        data = (head + transport).ljust(MIN_FRAME, b"\0")
    else:
        data = head + transport[:-ICRC_SIZE]
    return Frame(LINKTYPE_ETHERNET, data, length, packet.comment)
