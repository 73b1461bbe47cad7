"""The members of a subnet: a switch, and the nodes whose ports are plugged into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.subnet.node import Node
from bluebridge.device.fabric.subnet.port import PortAgent


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
