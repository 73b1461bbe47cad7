"""The tables that software programs into a port, and routes from paths that name their entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.fabric.messages import Route
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.rdma.ports.counters import FrameCounters

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


class Path:
    """The path of messages as the context of a queue pair or an address vector describes it.

    `source` is the index of the source MAC address, or the path bits of the source LID; `mac` or
    `lid` is the destination. `gid_index` is the own GID, `gid` the peer's; InfiniBand has both
    only where there is a `global_route`. `vlan_index` is the place of the VLAN in the port's
    table, or `tag` the tag itself, `NO_VLAN` for none; a VLAN of the table has the `priority`.
    `roce` is the version of RoCE, 0 for that of the own GID.
    """

    def __init__(self) -> None:
        self.source = 0
        self.mac = bytes(6)
        self.lid = 0
        self.global_route = False
        self.gid_index = 0
        self.gid = NO_GID
        self.traffic_class = 0
        self.hop_limit = 0
        self.flow_label = 0
        self.service_level = 0
        self.priority = 0
        self.vlan_index = -1
        self.tag = NO_VLAN
        self.roce = 0


def of_tag(tag: int) -> tuple[int, int]:
    """Return VLAN and service level of a tag; without a tag, the service level is 0."""
    return (NO_VLAN, 0) if tag == NO_VLAN else (tag & 0xFFF, tag >> 13)


def roce_route(tables: Tables, path: Path, tag: int, roce: int) -> Route:
    """Return the route of messages with this `path` and VLAN `tag` in this version of RoCE."""
    vlan, level = of_tag(tag)
    return Route(
        smac=tables.mac(path.source),
        dmac=path.mac,
        sgid=tables.gid(path.gid_index),
        dgid=path.gid,
        vlan=vlan,
        traffic_class=path.traffic_class,
        hop_limit=path.hop_limit,
        service_level=level,
        flow_label=path.flow_label,
        roce=roce,
    )
