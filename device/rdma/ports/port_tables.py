"""The tables that software programs into a port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.rdma.ports.frame_counters import FrameCounters

DEFAULT_MTU: Final = 1500


@dataclass(slots=True)
class Steering:
    """The QP numbers that Ethernet frames go to without groups and rules; None drops them."""

    unicast: int | None = None
    multicast: int | None = None
    promiscuous: int | None = None


@dataclass(slots=True)
class Tables:
    """All the state of a port that a reset of the adapter clears.

    `burned_in` is the MAC address that stands for empty entries. `link_modes` are those that
    software chose, in the bits of its adapter; None until it did. Contexts and address vectors
    name addresses by their index in these tables.
    """

    burned_in: bytes
    open: bool = False
    macs: Sequence[bytes | None] = ()
    vlans: Sequence[int | None] = ()
    gids: Sequence[bytes] = ()
    versions: Sequence[int] = ()
    steering: Steering = field(default_factory=Steering)
    multicast_filter: set[bytes] = field(default_factory=set)
    multicast_filter_on: bool = False
    link_modes: int | None = None
    vlan_filter: bytes = b""
    smi_qpn: int = -1
    gsi_qpn: int = -1
    mtu: int = DEFAULT_MTU
    capabilities: int = 0
    counters: FrameCounters = field(default_factory=FrameCounters)

    def mac(self, index: int) -> bytes:
        """Return source address `index`; the burned-in one for an empty entry."""
        return (self.macs[index] if index < len(self.macs) else None) or self.burned_in

    def vlan(self, index: int) -> int | None:
        """Return VLAN id `index`; None for an empty entry."""
        return self.vlans[index] if index < len(self.vlans) else None

    def gid(self, index: int) -> bytes:
        """Return GID `index`; the first one in use where that entry is empty.

        User-space address handles carry the index of another table than the hardware's.
        """
        if index < len(self.gids) and self.gids[index] != NO_GID:
            return self.gids[index]
        return next((gid for gid in self.gids if gid != NO_GID), NO_GID)

    def roce_version(self, index: int) -> int:
        """Return the RoCE version of GID `index`."""
        return self.versions[index] if index < len(self.versions) else 1
