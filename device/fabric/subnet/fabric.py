"""The InfiniBand fabric of the server, in which every port has a cable to one switch."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple, Protocol, cast

from bluebridge.device.fabric.addresses import PERMISSIVE, is_group, lid_of
from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Frames, Message
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.fabric.subnet.port import Change, PortAgent, PortCounters
from bluebridge.device.fabric.subnet.switch import Switch, SwitchPort
from bluebridge.device.fabric.subnet.topology import EndPort, Topology
from bluebridge.device.layout.ib.mad import NO_PORT, SWITCH_INFO
from bluebridge.device.layout.net.roce import SMI_QPN

SWITCH_GUID = 0x0002C90300BB0000
SWITCH_PORTS = 8
WORD = 4
"""Bytes in a word, in which ports count data."""

Cable = tuple[PortCounters, PortCounters]
"""The counters of the sending and the receiving end of a cable."""


class Watcher(Protocol):
    """The interface of those who follow events in the subnet: subnet manager, sender of traps."""

    def changed(self, agent: PortAgent, change: Change) -> None:
        """Take notice that a port changed."""

    def left(self, agent: PortAgent) -> None:
        """Take notice that a port was detached from the fabric."""


class _Way(NamedTuple):
    """The receivers of a port's messages for a LID, and the cables on the way."""

    targets: list[FabricPort]
    passed: list[Cable]


class InfinibandFabric(LocalFabric):
    """A fabric that carries messages by LID and switch tables, and SMPs along directed routes.

    A port that joins must be an `EndPort`. Whoever manages the subnet sets the tables: the
    manager in the switch, or software in a guest.
    """

    def __init__(self, guid: int = SWITCH_GUID, ports: int = SWITCH_PORTS) -> None:
        super().__init__(trusting=True)  # LIDs are given by the subnet manager, GIDs stand in GUIDs
        self.switch = Switch(guid, ports, self.send)
        self.topology = Topology(self.switch.node)
        self.watchers: list[Watcher] = []
        self._ways: dict[tuple[int, bytes], _Way] = {}
        self.switch.agent.listeners.append(self._changed)
        for port in self.switch.ports.values():
            port.agent.listeners.append(self._changed)

    def attach(self, port: FabricPort) -> None:
        """Connect a port with a cable; raises `ValueError` when the switch has no port left."""
        end = cast(EndPort, port)
        if any(end is other for other in self.topology.ends()):
            return
        free = next((own for own in self.switch.ports.values() if own.agent.peer is None), None)
        if free is None:
            raise ValueError(f"the InfiniBand switch has {len(self.switch.ports)} ports")
        super().attach(port)
        self.topology.add(end)
        end.agent.listeners.append(self._changed)
        end.agent.connect(free.agent)

    def detach(self, port: FabricPort) -> None:
        """Remove the cable of a port."""
        end = cast(EndPort, port)
        super().detach(port)
        end.agent.disconnect()
        self.topology.remove(end)
        self._ways.clear()
        for watcher in self.watchers:
            watcher.left(end.agent)

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Do nothing: LIDs and link states are read from the agents of the ports."""

    def _changed(self, agent: PortAgent, change: Change) -> None:
        self._ways.clear()
        if change & Change.STATE:
            SWITCH_INFO.set(self.switch.node.switch_info, "port_state_change", 1)
        for watcher in self.watchers:
            watcher.changed(agent, change)

    # -- forwarding ---------------------------------------------------------------------------

    def _deliver(self, source: FabricPort, message: Message) -> int:
        if _agent(source).link_up:
            self._count(source, message)
        return super()._deliver(source, message)

    def _is_up(self, port: FabricPort) -> bool:
        within = isinstance(port, (Switch, SwitchPort))
        return within or (port in self._announced and _agent(port).link_up)

    def _targets(self, source: FabricPort, message: Message) -> Sequence[FabricPort]:
        if isinstance(message, Frames) or not _agent(source).link_up:
            return []
        address = message.route.dmac
        managing = isinstance(message, Datagram) and message.target_qpn == SMI_QPN
        if address == PERMISSIVE:
            return self._across(source) if managing else []
        if is_group(address):
            return self._group(source, address) if isinstance(message, Datagram) else []
        if managing:
            return self._forward(source, address, managing=True)
        return self._way(source, address).targets

    def _way(self, source: FabricPort, address: bytes) -> _Way:
        """Return the way of data for a LID, which is remembered until something changes."""
        key = (id(source), address)
        way = self._ways.get(key)
        if way is None:
            targets = self._forward(source, address, managing=False)
            way = self._ways[key] = _Way(targets, _passed(source, targets))
        return way

    def _across(self, source: FabricPort) -> list[FabricPort]:
        """Return the port at the other end of the cable, in a list; empty without one."""
        if isinstance(source, SwitchPort):
            end = self._end(source.agent)
            return [end] if end is not None else []
        if source is self.switch:
            return []
        peer = cast(EndPort, source).agent.peer
        return [] if peer is None else [self.switch.ports[peer.number]]

    def _forward(self, source: FabricPort, address: bytes, *, managing: bool) -> list[FabricPort]:
        """Return the receivers by the unicast table; data need all ports on the way in service."""
        if not managing and not _in_service(source):
            return []
        if address in _agent(source).lids:
            return [source]
        egress = self.switch.node.forwarding.get(lid_of(address), NO_PORT)
        if egress == 0 or address in self.switch.agent.lids:
            return [self.switch] if address in self.switch.agent.lids else []
        port = self.switch.ports.get(egress)
        end = None if port is None else self._end(port.agent)
        if port is None or end is None or address not in end.agent.lids:
            return []
        return [end] if managing or (_in_service(port) and _in_service(end)) else []

    def _group(self, source: FabricPort, address: bytes) -> list[FabricPort]:
        """Return a group's receivers: the sender, whose adapter loops back, and the table's."""
        if not _in_service(source):
            return []
        targets: list[FabricPort] = [] if source is self.switch else [source]
        mask = self.switch.node.multicast.get(lid_of(address), 0)
        for number, port in self.switch.ports.items():
            end = self._end(port.agent) if mask >> number & 1 else None
            if end is not None and end is not source and _in_service(end) and _in_service(port):
                targets.append(end)
        return targets

    def _end(self, agent: PortAgent) -> EndPort | None:
        """Return the end port at the other end of a switch port's cable, None without one."""
        return None if agent.peer is None else self.topology.end_of(agent.peer)

    # -- counting -----------------------------------------------------------------------------

    def _count(self, source: FabricPort, message: Message) -> None:
        if isinstance(message, Frames):
            return
        packets, size = size_of(message)
        words, address = size // WORD, message.route.dmac
        group = isinstance(message, Datagram) and is_group(address)
        managing = isinstance(message, Datagram) and message.target_qpn == SMI_QPN
        if group or managing or address == PERMISSIVE:
            targets = self._targets(source, message)
            passed = _passed(source, targets)
        else:
            way = self._way(source, address)
            targets, passed = way.targets, way.passed
        for sent, received in passed:
            sent.sent(packets, words, group)
            received.received(packets, words, group)
        if not targets:
            _agent(source).counters.xmit_discards += packets


def _passed(source: FabricPort, targets: Sequence[FabricPort]) -> list[Cable]:
    """Return the counters on the way: into the switch once, out of it to each target."""
    agents = [_agent(target) for target in targets if target is not source]
    if not agents:
        return []
    sender = _agent(source)
    ways = []
    if sender.peer is not None:
        ways.append((sender.counters, sender.peer.counters))
    for agent in agents:
        if agent.peer is not None and agent is not sender.peer:
            ways.append((agent.peer.counters, agent.counters))
    return ways


def _agent(port: FabricPort) -> PortAgent:
    return cast(EndPort, port).agent


def _in_service(port: FabricPort) -> bool:
    return _agent(port).carries_data
