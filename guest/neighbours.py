"""The frames that ask for the MAC of an address: ARP for IPv4, neighbour discovery for IPv6.

Both are used by `bluebridge.guest.netif`; addresses are packed, 4 or 16 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from bluebridge.device.layout.net.ethernet import (
    ARP,
    ARP_REPLY,
    ARP_REQUEST,
    BROADCAST,
    ETHERNET,
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    HEADER_SIZE,
    MIN_FRAME,
)
from bluebridge.device.layout.net.ip import (
    ALL_NODES,
    HOP_LIMIT,
    IPV6,
    LINK_OPTION,
    NEIGHBOUR,
    OVERRIDE,
    PROTOCOL_ICMPV6,
    SOLICITED,
    LinkOption,
    NeighbourType,
    group_mac,
    ones_complement_sum,
    solicited_node,
)

_NO_MAC = bytes(6)
_BODY = HEADER_SIZE + IPV6.size
_OPTION = _BODY + NEIGHBOUR.size
_LENGTH = NEIGHBOUR.size + LINK_OPTION.size


class Heard(NamedTuple):
    """A neighbour that a frame names: `sender` is at `mac`.

    `for_us` says that the frame is about this side's address, or to it; `asks` that its sender
    wants to know this side's MAC.
    """

    sender: bytes
    mac: bytes
    for_us: bool
    asks: bool


def neighbours_of(own: bytes, mac: bytes) -> Arp | NeighbourDiscovery:
    """Return what finds MAC addresses on behalf of the address `own` at `mac`."""
    return Arp(own, mac) if len(own) == 4 else NeighbourDiscovery(own, mac)


class Arp:
    """The address resolution protocol of IPv4 (RFC 826)."""

    groups: tuple[bytes, ...] = ()
    """The group MAC addresses that are needed besides broadcast."""

    def __init__(self, own: bytes, mac: bytes) -> None:
        self._own = own
        self._mac = mac

    def question(self, target: bytes) -> bytes:
        """Return a broadcast that asks for `target`."""
        return self._frame(ARP_REQUEST, BROADCAST, _NO_MAC, target)

    def answer(self, heard: Heard) -> bytes:
        """Return the answer to the sender of the question."""
        return self._frame(ARP_REPLY, heard.mac, heard.mac, heard.sender)

    def announcement(self) -> bytes:
        """Return a gratuitous ARP packet: a question for the own address."""
        return self.question(self._own)

    def heard(self, frame: bytes) -> Heard | None:
        """Return the sender of any ARP packet for IPv4 on Ethernet."""
        if len(frame) < HEADER_SIZE + ARP.size:
            return None
        arp = frame[HEADER_SIZE:]
        kind = (ETHERNET.get(frame, "ethertype"), ARP.get(arp, "hardware"))
        sizes = (ARP.get(arp, "hardware_size"), ARP.get(arp, "protocol_size"))
        protocol = ARP.get(arp, "protocol")
        if kind != (ETHERTYPE_ARP, 1) or protocol != ETHERTYPE_IPV4 or sizes != (6, 4):
            return None
        return Heard(
            ARP.get_raw(arp, "sender_ip"),
            ARP.get_raw(arp, "sender_mac"),
            ARP.get_raw(arp, "target_ip") == self._own,
            ARP.get(arp, "operation") == ARP_REQUEST,
        )

    def _frame(self, operation: int, dmac: bytes, target_mac: bytes, target_ip: bytes) -> bytes:
        frame = ETHERNET.pack(dmac=dmac, smac=self._mac, ethertype=ETHERTYPE_ARP) + ARP.pack(
            hardware=1,
            protocol=ETHERTYPE_IPV4,
            hardware_size=6,
            protocol_size=4,
            operation=operation,
            sender_mac=self._mac,
            sender_ip=self._own,
            target_mac=target_mac,
            target_ip=target_ip,
        )
        return bytes(frame.ljust(MIN_FRAME, b"\0"))


class NeighbourDiscovery:
    """The neighbour discovery of IPv6 (RFC 4861): solicitations and advertisements."""

    def __init__(self, own: bytes, mac: bytes) -> None:
        self._own = own
        self._mac = mac
        self.groups: tuple[bytes, ...] = (group_mac(ALL_NODES), group_mac(solicited_node(own)))

    def question(self, target: bytes) -> bytes:
        """Return a solicitation to the group that the target is in."""
        group = solicited_node(target)
        return self._frame(group_mac(group), group, NeighbourType.SOLICITATION, 0, target)

    def answer(self, heard: Heard) -> bytes:
        """Return an advertisement, to all nodes where the sender has no address yet."""
        if not any(heard.sender):
            return self.announcement()
        flags = SOLICITED | OVERRIDE
        return self._frame(heard.mac, heard.sender, NeighbourType.ADVERTISEMENT, flags, self._own)

    def announcement(self) -> bytes:
        """Return an unsolicited advertisement."""
        mac = group_mac(ALL_NODES)
        return self._frame(mac, ALL_NODES, NeighbourType.ADVERTISEMENT, OVERRIDE, self._own)

    def heard(self, frame: bytes) -> Heard | None:
        """Return the sender of a valid solicitation or advertisement, else None.

        Checksum and hop limit must be right.
        """
        header = frame[HEADER_SIZE:_BODY]
        if len(frame) < _OPTION or ETHERNET.get(frame, "ethertype") != ETHERTYPE_IPV6:
            return None
        protocol = (IPV6.get(header, "next_header"), IPV6.get(header, "hop_limit"))
        length = IPV6.get(header, "payload_length")
        body = frame[_BODY : _BODY + length]
        if protocol != (PROTOCOL_ICMPV6, HOP_LIMIT) or not NEIGHBOUR.size <= length == len(body):
            return None
        kind = NEIGHBOUR.get(body, "type")
        if kind not in tuple(NeighbourType) or _checksum(header, body):
            return None
        target, mac = NEIGHBOUR.get_raw(body, "target"), _link_address(body) or frame[6:12]
        if kind == NeighbourType.SOLICITATION:
            return Heard(IPV6.get_raw(header, "source"), mac, target == self._own, True)
        return Heard(target, mac, IPV6.get_raw(header, "destination") == self._own, False)

    def _frame(
        self, dmac: bytes, destination: bytes, kind: NeighbourType, flags: int, target: bytes
    ) -> bytes:
        option = LinkOption.SOURCE if kind is NeighbourType.SOLICITATION else LinkOption.TARGET
        header = IPV6.pack(
            version=6,
            payload_length=_LENGTH,
            next_header=PROTOCOL_ICMPV6,
            hop_limit=HOP_LIMIT,
            source=self._own,
            destination=destination,
        )
        body = NEIGHBOUR.pack(type=kind, flags=flags, target=target)
        body += LINK_OPTION.pack(type=option, length=1, mac=self._mac)
        NEIGHBOUR.set(body, "checksum", _checksum(header, body))
        return bytes(
            ETHERNET.pack(dmac=dmac, smac=self._mac, ethertype=ETHERTYPE_IPV6) + header + body
        )


def _checksum(header: bytes | bytearray, body: bytes | bytearray) -> int:
    """Return an ICMPv6 message's checksum with its pseudo header.

    It is 0 when the message holds the right one.
    """
    addresses = IPV6.get_raw(header, "source") + IPV6.get_raw(header, "destination")
    rest = len(body).to_bytes(4, "big") + PROTOCOL_ICMPV6.to_bytes(4, "big")
    return ones_complement_sum(addresses + rest + bytes(body))


def _link_address(body: bytes) -> bytes | None:
    """Return the MAC address in the options of a message, None if there is none."""
    at = NEIGHBOUR.size
    while at + LINK_OPTION.size <= len(body):
        units = LINK_OPTION.get(body, "length", at)
        if not units:
            return None
        if units == 1 and LINK_OPTION.get(body, "type", at) in tuple(LinkOption):
            return LINK_OPTION.get_raw(body, "mac", at)
        at += 8 * units
    return None
