"""The members of a subnet: a switch, and the nodes whose ports are plugged into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.mad import NODE_INFO, SWITCH_INFO

CHANNEL_ADAPTER, SWITCH = 1, 2
VENDOR_MELLANOX = 0x0002C9
DESCRIPTION_SIZE = 64


@dataclass
class Node:
    """A channel adapter, whose ports count from 1, or a switch, whose port 0 is its own.

    `forwarding` and `multicast` are a switch's tables: egress port by LID, mask of egress ports
    by group LID.
    """

    kind: int
    guid: int
    device_id: int
    ports: dict[int, PortAgent]
    description: bytes = b""
    switch_info: bytearray = field(default_factory=SWITCH_INFO.pack)
    forwarding: dict[int, int] = field(default_factory=dict)
    multicast: dict[int, int] = field(default_factory=dict)

    @property
    def is_switch(self) -> bool:
        """True for a switch, which packets pass through."""
        return self.kind == SWITCH

    def info(self, port: int) -> bytes:
        """Return the NodeInfo that answers a request through `port`."""
        own = self.ports[0] if self.is_switch else self.ports[port]
        return bytes(NODE_INFO.pack(
            base_version=1, class_version=1, node_type=self.kind,
            ports=len(self.ports) - self.is_switch, system_image_guid=self.guid,
            node_guid=self.guid, port_guid=own.guid, partition_cap=len(own.pkeys),
            device_id=self.device_id, local_port=port, vendor_id=VENDOR_MELLANOX,
        ))  # fmt: skip

    def described(self) -> bytes:
        """Return the NodeDescription."""
        return self.description[:DESCRIPTION_SIZE].ljust(DESCRIPTION_SIZE, b"\0")


class EndPort(FabricPort, Protocol):
    """A port of an HCA, as an InfiniBand fabric sees it."""

    @property
    def agent(self) -> PortAgent:
        """The agent of the port, which subnet management reads and sets."""

    @property
    def node(self) -> Node:
        """The node that the port belongs to."""


class Topology:
    """The nodes and end ports of a subnet; all cables lead to its one `switch`."""

    def __init__(self, switch: Node) -> None:
        self.switch = switch
        self._ends: list[EndPort] = []

    def add(self, end: EndPort) -> None:
        """Add an end port that joined the subnet."""
        self._ends.append(end)

    def remove(self, end: EndPort) -> None:
        """Remove an end port that left the subnet."""
        self._ends = [other for other in self._ends if other is not end]

    def ends(self) -> list[EndPort]:
        """Return the end ports of HCAs, in the order they came."""
        return list(self._ends)

    def end_of(self, agent: PortAgent) -> EndPort | None:
        """Return the end port that has this agent, None without one."""
        return next((end for end in self._ends if end.agent is agent), None)

    def addressed(self) -> Iterator[tuple[Node, PortAgent]]:
        """Yield every port that has a LID, with its node."""
        own = self.switch.ports[0]
        if own.lid:
            yield self.switch, own
        for end in self._ends:
            if end.agent.lid and end.agent.link_up:
                yield end.node, end.agent

    def by_lid(self, lid: bytes) -> PortAgent | None:
        """Return the agent of the port that answers to a LID, None without one."""
        return next((port for _, port in self.addressed() if lid in port.lids), None)

    def by_gid(self, gid: bytes) -> PortAgent | None:
        """Return the agent of the port that has a GID, None without one."""
        for _, port in self.addressed():
            if any(port.gid(index) == gid for index in range(len(port.guids)) if any(gid)):
                return port
        return None

    def links(self) -> Iterator[tuple[PortAgent, PortAgent]]:
        """Yield both ends of every cable whose link is up, the switch's end first."""
        for port in self.switch.ports.values():
            if port.peer is not None and port.link_up:
                yield port, port.peer
