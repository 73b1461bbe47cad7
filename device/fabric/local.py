"""A fabric inside one process: every port sees every other, nothing is lost on the way."""

from __future__ import annotations

import logging
from collections import deque

from bluebridge.device.fabric.messages import (
    Datagram,
    FabricPort,
    Frames,
    Message,
    Request,
    Response,
    Statistics,
)
from bluebridge.device.throttle import Throttle

_LOG = logging.getLogger(__name__)
GROUP_BIT = 1  # of the first byte of a MAC address: broadcast or multicast


def _length(message: Message) -> int:
    if isinstance(message, Request):
        return message.length
    if isinstance(message, Frames):
        return sum(len(frame) for train in message.trains for frame in train.frames)
    if isinstance(message, Response):
        return sum(view.nbytes for view in message.payload)
    return len(message.payload)


class LocalFabric:
    """Connects the ports of one process, in order and without a copy.

    What a port sends while another message is being delivered waits in a queue until that
    delivery is over, so two chatting ports never recurse. An exception of a receiving port is
    logged (of many only some) and ends that delivery only: the sender is never the victim.
    """

    def __init__(self) -> None:
        self.statistics = Statistics()
        self._ports: list[FabricPort] = []
        self._queue: deque[tuple[FabricPort, Message]] = deque()
        self._delivering = False
        self._failures = Throttle()

    def attach(self, port: FabricPort) -> None:
        """Connect a port; a second time does nothing."""
        if not any(port is other for other in self._ports):
            self._ports.append(port)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port; messages for it, queued ones too, are lost."""
        self._ports = [other for other in self._ports if other is not port]

    def send(self, source: FabricPort, message: Message) -> None:
        """Deliver a message and all those it causes, or queue it while a delivery runs."""
        self._queue.append((source, message))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._queue:
                self._deliver(*self._queue.popleft())
        finally:
            self._delivering = False

    def _deliver(self, source: FabricPort, message: Message) -> None:
        statistics = self.statistics
        targets = self._targets(source, message) if source.link_up else []
        if not targets:
            statistics.lost += 1
            return
        kind = type(message).__name__
        statistics.by_kind[kind] = statistics.by_kind.get(kind, 0) + 1
        statistics.delivered += 1
        statistics.bytes += _length(message)
        for port in targets:
            try:
                port.receive(message)
            except Exception:
                if self._failures.admits():
                    _LOG.exception("a port failed on a %s (%d so far)", kind, self._failures.count)

    def _targets(self, source: FabricPort, message: Message) -> list[FabricPort]:
        if isinstance(message, Frames):
            return self._frame_targets(source, message.address)
        address = message.route.dmac
        if address[:1] and address[0] & GROUP_BIT:
            if not isinstance(message, Datagram):
                return []
            return [port for port in self._ports if port.link_up]
        if address in source.mac_addresses:
            return [source]
        targets = []
        for port in self._ports:  # a list comprehension costs a call
            if address in port.mac_addresses and port.link_up:
                targets.append(port)
        return targets

    def _frame_targets(self, source: FabricPort, address: bytes) -> list[FabricPort]:
        """Ports other than the source: Ethernet frames never come back.

        An address that nobody owns floods like in a switch, for ports in promiscuous mode.
        """
        others = [port for port in self._ports if port is not source and port.link_up]
        if address[:1] and not address[0] & GROUP_BIT:
            owners = [port for port in others if address in port.mac_addresses]
            return owners or others
        return others
