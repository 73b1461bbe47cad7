"""What a port sends from: sources that software programs, and routes from paths to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from bluebridge.device.fabric.messages import Route
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.rdma.ports.counters import FrameCounters


class Source(NamedTuple):
    """What a message comes from: MAC address, GID, VLAN (`NO_VLAN` for none), version of RoCE."""

    mac: bytes
    gid: bytes
    vlan: int
    version: int


class Sources(ABC):
    """The sources of one port as its software programs them; a port calls `reset` with its own.

    A face calls `Port.sources_changed` after any change.
    """

    @abstractmethod
    def of(self, path: Path) -> Source:
        """Return the source that a path names."""

    @property
    @abstractmethod
    def mac(self) -> bytes:
        """The MAC address of frames that the port itself sends."""

    @abstractmethod
    def macs_in_use(self) -> frozenset[bytes]:
        """Return the unicast addresses that the port answers to; never empty."""

    @abstractmethod
    def gids_in_use(self) -> frozenset[bytes]:
        """Return the GIDs that the port answers to."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything that software programmed."""


@dataclass(slots=True)
class Tables:
    """The state of a port that a reset of the adapter clears, besides its sources.

    `smi_qpn` and `gsi_qpn` are the queue pairs that get what is sent to 0 and 1; -1 for none.
    """

    open: bool = False
    smi_qpn: int = -1
    gsi_qpn: int = -1
    counters: FrameCounters = field(default_factory=FrameCounters)


class Path:
    """The path of messages as the context of a queue pair or an address vector describes it.

    `source` is the index of the source in the tables of the port's face, or the path bits of the
    source LID; `mac` or `lid` is the destination. `gid_index` is the own GID, `gid` the peer's;
    InfiniBand has both only where there is a `global_route`. A VLAN has the `priority`. `udp_port`
    is the source port of RoCE v2, 0 where it is computed from the numbers of the queue pairs. A
    face may derive a class with more of what names a source in its tables.
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
        self.udp_port = 0


def of_tag(tag: int) -> tuple[int, int]:
    """Return VLAN and service level of a tag; without a tag, the service level is 0."""
    return (NO_VLAN, 0) if tag == NO_VLAN else (tag & 0xFFF, tag >> 13)


def roce_route(source: Source, path: Path) -> Route:
    """Return the route of messages with this `path` from a source."""
    return Route(
        smac=source.mac,
        dmac=path.mac,
        sgid=source.gid,
        dgid=path.gid,
        vlan=source.vlan,
        traffic_class=path.traffic_class,
        hop_limit=path.hop_limit,
        service_level=0 if source.vlan == NO_VLAN else path.priority,
        flow_label=path.flow_label,
        roce=source.version,
        udp_port=path.udp_port,
    )
