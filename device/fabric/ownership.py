"""The owners of a network's addresses: MAC addresses, and GIDs, which IP addresses are, too.

A port may not use an address that belongs to another port. Its first announcement names the address
that was burned into it, which stays its own whatever it announces later, with its link down too.
Others belong to the port that announced them first, until that one announces a set without them.
A trunk is a port that announces little: it owns what it was heard to send from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Set
from typing import Final

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
)
from bluebridge.device.layout.net.ip import (
    IPV4_MAPPED,
    IPV6,
    NEIGHBOUR,
    PROTOCOL_ICMPV6,
    NeighbourType,
)
from bluebridge.device.layout.net.roce import NO_GID

MOST_LEARNED: Final = 256
"""Most addresses of a trunk; further ones belong to nobody."""
AGE_SECONDS: Final = 300.0
"""Seconds after which an address that sent nothing is forgotten, as in Linux."""

_NOTHING: Final[frozenset[bytes]] = frozenset()
_UNSPECIFIED: Final = (NO_GID, IPV4_MAPPED + bytes(4))
"""What stands for no address, in probes and before a host has one."""
_TAG_SIZE: Final = 4
_IPV4: Final = int(ETHERTYPE_IPV4)
_ARP: Final = int(ETHERTYPE_ARP)
_IPV6: Final = int(ETHERTYPE_IPV6)
_ROCE: Final = int(ETHERTYPE_ROCE)
_VLAN: Final = int(ETHERTYPE_VLAN)
_SERVICE_VLAN: Final = int(ETHERTYPE_SERVICE_VLAN)
_PER_HOP: Final = 0
_ROUTING: Final = 43
_OPTIONS: Final = 60
"""Headers of IPv6 that may precede an advertisement."""
_ICMPV6: Final = int(PROTOCOL_ICMPV6)
_ADVERTISEMENT: Final = int(NeighbourType.ADVERTISEMENT)
_IPV6_SIZE: Final = int(IPV6.size)
_NEIGHBOUR_SIZE: Final = int(NEIGHBOUR.size)
_NEXT: Final = 6
_TARGET: Final = 8


def senders(frame: bytes) -> list[bytes]:
    """Return the addresses that an Ethernet frame speaks for: its MAC address, and GIDs.

    GIDs are the sources of RoCE and IP, the sender of ARP, the target of an advertisement of
    neighbour discovery.
    """
    at = 12
    kind = _ethertype(frame, at)
    while kind in (_VLAN, _SERVICE_VLAN):  # a frame may be full of tags
        at += _TAG_SIZE
        kind = _ethertype(frame, at)
    at += 2
    found = [frame[6:12]]
    if kind == _IPV4:
        gids = [IPV4_MAPPED + frame[at + 12 : at + 16]]
    elif kind == _ARP:
        gids = [IPV4_MAPPED + frame[at + 14 : at + 18]]
    elif kind == _IPV6:
        gids = [frame[at + 8 : at + 24], _advertised(frame, at)]
    elif kind == _ROCE:
        gids = [frame[at + 8 : at + 24]]
    else:
        return found
    for gid in gids:
        if len(gid) == len(NO_GID) and gid not in _UNSPECIFIED:
            found.append(gid)
    return found


def _ethertype(frame: bytes, at: int) -> int:
    """Return the Ethertype at `at`, -1 behind the end of a frame."""
    return frame[at] << 8 | frame[at + 1] if at + 2 <= len(frame) else -1


def _advertised(frame: bytes, at: int) -> bytes:
    """Return the address that an IPv6 packet at `at` says its sender has; empty for none."""
    size, end = len(frame), at + _IPV6_SIZE
    if end > size:
        return b""
    following = frame[at + _NEXT]
    while following in (_PER_HOP, _ROUTING, _OPTIONS):
        if end + 2 > size:
            return b""
        following, end = frame[end], end + 8 + 8 * frame[end + 1]
    if following != _ICMPV6 or end + _NEIGHBOUR_SIZE > size or frame[end] != _ADVERTISEMENT:
        return b""
    return frame[end + _TARGET : end + _NEIGHBOUR_SIZE]


class Ownership:
    """The owners of a fabric's addresses; `refused` counts announcements of others', by port."""

    def __init__(self) -> None:
        self.refused: dict[FabricPort, int] = {}
        self._burned_in: dict[FabricPort, frozenset[bytes]] = {}
        self._wanted: dict[FabricPort, frozenset[bytes]] = {}
        self._owners: dict[bytes, FabricPort] = {}

    def announce(self, port: FabricPort, addresses: Set[bytes]) -> None:
        """Note the addresses of a port, which replace earlier ones, and determine all owners."""
        wanted = frozenset(addresses)
        self._burned_in.setdefault(port, wanted)
        if self._wanted.get(port) != wanted:
            self._wanted[port] = wanted
            self._settle()
            refused = sum(self._owners[address] is not port for address in wanted)
            if refused:
                self.refused[port] = self.refused.get(port, 0) + refused

    def forget(self, port: FabricPort) -> None:
        """Remove a port that has left, and give its addresses to the ports that want them next."""
        self._burned_in.pop(port, None)
        self._wanted.pop(port, None)
        self.refused.pop(port, None)
        self._settle()

    def _settle(self) -> None:
        before, self._owners = self._owners, {}
        for port, addresses in self._burned_in.items():
            self._give(port, addresses)
        for address, port in before.items():
            if address in self._wanted.get(port, _NOTHING):
                self._owners.setdefault(address, port)
        for port, addresses in self._wanted.items():
            self._give(port, addresses)

    def _give(self, port: FabricPort, addresses: Iterable[bytes]) -> None:
        for address in addresses:
            self._owners.setdefault(address, port)

    def permits(self, port: FabricPort, address: bytes) -> bool:
        """Return True if a port may use an address: its own, or one without an owner."""
        owner = self._owners.get(address)
        return owner is None or owner is port


class Trunk:
    """The addresses of a trunk: those it announced, and those it was heard to send from.

    Trunks of one `group` do not hear each other.
    """

    def __init__(self, group: object) -> None:
        self.group = group
        self.announced: frozenset[bytes] = _NOTHING
        self._heard: OrderedDict[bytes, float] = OrderedDict()
        """Addresses and when they were heard last, the one that was quiet longest first."""

    @property
    def addresses(self) -> frozenset[bytes]:
        """All addresses of the trunk."""
        return self.announced.union(self._heard)

    def announce(self, addresses: Set[bytes], *, up: bool) -> None:
        """Note what the trunk announces itself; with its link down it has nothing else."""
        self.announced = frozenset(addresses)
        if not up:
            self._heard.clear()

    def hear(self, addresses: Iterable[bytes], now: float) -> bool:
        """Note addresses that the trunk sends from; returns True if there are new ones."""
        heard, count = self._heard, len(self._heard)
        for address in addresses:
            if address in heard or len(heard) < MOST_LEARNED:
                heard[address] = now
                heard.move_to_end(address)
        return len(heard) != count

    def forget_quiet(self, now: float) -> bool:
        """Forget addresses that were quiet for too long; returns True if there were such."""
        heard, count = self._heard, len(self._heard)
        while heard:
            oldest = next(iter(heard))
            if now - heard[oldest] <= AGE_SECONDS:
                break
            del heard[oldest]
        return len(heard) != count
