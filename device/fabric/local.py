"""A fabric inside one process, in which every port reaches every other and nothing is lost.

A port may not use an address that belongs to another port, a MAC address or a GID. Its first
announcement names the address that was burned into it, which stays its own whatever it announces
later, with its link down too. Others belong to the port that announced them first, until that one
announces a set without them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.fabric.interface import FabricPort, Stage
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Route
from bluebridge.device.throttle import Throttle

_NOTHING: Final[frozenset[bytes]] = frozenset()


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


_LOG: Final = logging.getLogger(__name__)
_NO_PORTS: Sequence[FabricPort] = ()


@dataclass(slots=True)
class Statistics:
    """The message counts of a fabric, for views and tests."""

    delivered: int = 0
    lost: int = 0
    spoofed: int = 0
    """Messages sent from an address that belongs to another port; they count as lost, too."""


class LocalFabric:
    """A fabric that connects the ports of one process by MAC address, in order, without copying.

    What a port sends while another message is being delivered waits in a queue until that delivery
    is over, so two ports that answer each other never recurse. Queued messages hold views of their
    senders' memory: the queue is empty again when the outermost `send` returns. An exception of a
    receiving port is logged (of many only some) and ends that delivery only: the sender is not
    affected.

    A `stage` decides what becomes of each message that has found its targets.

    Unless it is `trusting`, a port gets nothing for an address that belongs to another port, and
    what it sends from one is dropped.
    """

    def __init__(self, *, trusting: bool = False) -> None:
        self.statistics = Statistics()
        self._ownership = None if trusting else Ownership()
        self._spoofed = Throttle()
        self._spoofed_by: dict[FabricPort, int] = {}
        self._proven: dict[FabricPort, Route] = {}
        """Of each port the route that was found genuine last; a queue pair has one for all."""
        self.stage: Stage | None = None
        self._announced: dict[FabricPort, Set[bytes] | None] = {}
        """Addresses of each attached port, in the order they came; None while its link is down."""
        self._owners: dict[bytes, list[FabricPort]] = {}
        """Ports whose link is up, by unicast address."""
        self._others: dict[FabricPort, list[FabricPort]] = {}
        """Of each port whose link is up all others whose link is up."""
        self._queue: deque[tuple[FabricPort, Message]] = deque()
        self._delivering = False
        self._failures = Throttle()

    def attach(self, port: FabricPort) -> None:
        """Connect a port; one that is connected already stays as it is."""
        self._announced.setdefault(port)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port; messages for it, queued ones too, are lost."""
        self._announced.pop(port, None)
        if self._ownership is not None:
            self._ownership.forget(port)
        self._spoofed_by.pop(port, None)
        self._tabulate()

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Set the addresses and link state of a port; ignored if the port is not attached."""
        if port in self._announced:
            if self._ownership is not None:
                self._ownership.announce(port, addresses)
            self._announced[port] = addresses if up else None
            self._tabulate()

    def _tabulate(self) -> None:
        """Make new tables; a delivery that is under way continues with the old ones."""
        self._proven.clear()
        up = {port: own for port, own in self._announced.items() if own is not None}
        self._others = {port: [other for other in up if other is not port] for port in up}
        owners: dict[bytes, list[FabricPort]] = {}
        for port, own in up.items():
            for address in own:
                if not is_group(address) and self._permits(port, address):
                    owners.setdefault(address, []).append(port)
        self._owners = owners

    def _permits(self, port: FabricPort, address: bytes) -> bool:
        return self._ownership is None or self._ownership.permits(port, address)

    def _is_genuine(self, source: FabricPort, message: Message) -> bool:
        """Return True unless a message comes from the address of another port."""
        ownership = self._ownership
        if ownership is None:
            return True
        if isinstance(message, Frames):
            return all(
                ownership.permits(source, frame[6:12])
                for train in message.trains
                for frame in train.frames
            )
        route = message.route
        if self._proven.get(source) is route:
            return True
        genuine = ownership.permits(source, route.smac) and ownership.permits(source, route.sgid)
        if genuine:
            self._proven[source] = route
        return genuine

    def trespasses(self, port: FabricPort) -> tuple[int, int]:
        """Count a port's messages dropped, and its claims refused, for addresses of other ports."""
        refused = self._ownership.refused if self._ownership is not None else {}
        return self._spoofed_by.get(port, 0), refused.get(port, 0)

    def _drop_spoofed(self, source: FabricPort, message: Message) -> None:
        self._spoofed_by[source] = self._spoofed_by.get(source, 0) + 1
        self.statistics.spoofed += 1
        self.statistics.lost += 1
        if self._spoofed.admits():
            _LOG.warning(
                "dropped a %s from an address of another port (%d so far)",
                type(message).__name__,
                self._spoofed.count,
            )

    def send(self, source: FabricPort, message: Message) -> int:
        """Deliver a message and all those it causes, or queue it while a delivery runs."""
        if self._delivering:
            self._queue.append((source, message))
            return 0
        self._delivering = True
        try:
            copies = self._deliver(source, message)
            while self._queue:
                self._deliver(*self._queue.popleft())
        finally:
            self._queue.clear()
            self._delivering = False
        return copies

    def deliver_late(self, targets: Sequence[FabricPort], message: Message) -> None:
        """Deliver a message that waited, and all those it causes, to `targets` whose link is up.

        Not while another delivery runs. The message owns its payload.
        """
        self._delivering = True
        try:
            self._hand_over([port for port in targets if self._is_up(port)], message)
            while self._queue:
                self._deliver(*self._queue.popleft())
        finally:
            self._queue.clear()
            self._delivering = False

    def _is_up(self, port: FabricPort) -> bool:
        """Return True if a port is attached and its link is up."""
        return port in self._others

    def _deliver(self, source: FabricPort, message: Message) -> int:
        """Deliver a message; returns the copies that receivers and the stage made."""
        if not self._is_genuine(source, message):
            self._drop_spoofed(source, message)
            return 0
        targets = self._targets(source, message)
        stage = self.stage
        if stage is None:
            return self._hand_over(targets, message)
        targets, copies = stage.admit(source, targets, message)
        return copies + self._hand_over(targets, message)

    def _hand_over(self, targets: Sequence[FabricPort], message: Message) -> int:
        """Hand a message to ports; returns the copies that receivers made."""
        statistics = self.statistics
        if not targets:
            statistics.lost += 1
            return 0
        statistics.delivered += 1
        copies = 0
        for port in targets:
            try:
                copies += port.receive(message)
            except Exception:
                if self._failures.admits():
                    kind, count = type(message).__name__, self._failures.count
                    _LOG.exception("a port failed on a %s (%d so far)", kind, count)
        return copies

    def _targets(self, source: FabricPort, message: Message) -> Sequence[FabricPort]:
        others = self._others.get(source)
        if others is None:
            return _NO_PORTS
        if isinstance(message, Frames):
            return self._frame_targets(source, others, message.address)
        address = message.route.dmac
        owners = self._owners.get(address)
        if owners is not None:
            return owners if len(owners) == 1 or source not in owners else [source]
        if isinstance(message, Datagram) and is_group(address):
            return list(self._others)
        return _NO_PORTS

    def _frame_targets(
        self, source: FabricPort, others: list[FabricPort], address: bytes
    ) -> Sequence[FabricPort]:
        """Return the ports a frame goes to; it never comes back to its source.

        A group, and an address that no port has announced, reaches them all as in a switch: the
        latter for ports in promiscuous mode.
        """
        owners = self._owners.get(address, _NO_PORTS)
        if source in owners:
            owners = [port for port in owners if port is not source]
        return owners or others
