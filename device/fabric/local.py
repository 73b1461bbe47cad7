"""A fabric inside one process, in which every port reaches every other and nothing is lost.

What a port sends from an address of another port is dropped (`bluebridge.device.fabric.ownership`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from time import monotonic
from typing import Final

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.fabric.interface import FabricPort, Stage
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Route, Train
from bluebridge.device.fabric.ownership import Ownership, Trunk, senders
from bluebridge.device.throttle import Throttle

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
    what it sends from one is dropped. `now` is the clock, in seconds.
    """

    def __init__(self, *, trusting: bool = False, now: Callable[[], float] = monotonic) -> None:
        self.statistics = Statistics()
        self._now = now
        self._trunks: dict[FabricPort, Trunk] = {}
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

    def learn_from(self, port: FabricPort, group: object = None) -> None:
        """Let a port own, besides what it announces, what it sends from, and get what is for that.

        Ports of one `group` other than None do not hear each other.
        """
        self._trunks[port] = Trunk(group)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port; messages for it, queued ones too, are lost."""
        self._announced.pop(port, None)
        self._trunks.pop(port, None)
        if self._ownership is not None:
            self._ownership.forget(port)
        self._spoofed_by.pop(port, None)
        self._tabulate()

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Set the addresses and link state of a port; ignored if the port is not attached."""
        if port in self._announced:
            self._forget_quiet()
            trunk = self._trunks.get(port)
            if trunk is not None:
                trunk.announce(addresses, up=up)
                addresses = trunk.addresses
            self._set(port, addresses, up)

    def _set(self, port: FabricPort, addresses: Set[bytes], up: bool) -> None:
        if self._ownership is not None:
            self._ownership.announce(port, addresses)
        self._announced[port] = addresses if up else None
        self._tabulate()

    def _forget_quiet(self) -> bool:
        """Forget addresses that trunks have not used for long; returns True if there were such."""
        now, found = self._now(), False
        for port, trunk in self._trunks.items():
            if trunk.forget_quiet(now):
                found = True
                self._set(port, trunk.addresses, self._is_up(port))
        return found

    def _tabulate(self) -> None:
        """Make new tables; a delivery that is under way continues with the old ones."""
        self._proven.clear()
        up = {port: own for port, own in self._announced.items() if own is not None}
        self._others = {port: [other for other in up if self._hears(other, port)] for port in up}
        owners: dict[bytes, list[FabricPort]] = {}
        for port, own in up.items():
            for address in own:
                if not is_group(address) and self._permits(port, address):
                    owners.setdefault(address, []).append(port)
        self._owners = owners

    def _hears(self, port: FabricPort, source: FabricPort) -> bool:
        own, other = self._trunks.get(port), self._trunks.get(source)
        if own is not None and other is not None and own.group is not None:
            return own.group is not other.group
        return port is not source

    def _permits(self, port: FabricPort, address: bytes) -> bool:
        return self._ownership is None or self._ownership.permits(port, address)

    def _is_genuine(self, source: FabricPort, message: Message) -> bool:
        """Return True unless a message comes from the address of another port."""
        ownership = self._ownership
        if ownership is None:
            return True
        if isinstance(message, Frames):
            return all(ownership.permits(source, address) for address in _senders(message))
        route = message.route
        # A queue pair sends all its messages with one object, so most need no look-up.
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
        count = _count(message)
        self._spoofed_by[source] = self._spoofed_by.get(source, 0) + count
        self.statistics.spoofed += count
        self.statistics.lost += count
        if self._spoofed.admits():
            _LOG.warning(
                "dropped a %s from an address of another port (%d so far)",
                type(message).__name__,
                self._spoofed.count,
            )

    def send(self, source: FabricPort, message: Message) -> int:
        """Deliver a message and all those it causes, or queue it while a delivery runs."""
        # Nested, deliveries would overtake each other, as deep as guests like.
        if self._delivering:
            self._queue.append((source, message))
            return 0
        self._delivering = True
        try:
            copies = self._deliver(source, message)
            while self._queue:
                sender, caused = self._queue.popleft()
                self._deliver(sender, caused)
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
                sender, caused = self._queue.popleft()
                self._deliver(sender, caused)
        finally:
            self._queue.clear()
            self._delivering = False

    def _is_up(self, port: FabricPort) -> bool:
        """Return True if a port is attached and its link is up."""
        return port in self._others

    def _deliver(self, source: FabricPort, message: Message) -> int:
        """Deliver a message; returns the copies that receivers and the stage made."""
        # Who was heard from the address before may have been quiet for so long that it is free.
        if not self._is_genuine(source, message) and not (
            self._forget_quiet() and self._is_genuine(source, message)
        ):
            self._drop_spoofed(source, message)
            return 0
        trunk = self._trunks.get(source)
        if trunk is not None and isinstance(message, Frames):
            self._forget_quiet()
            if self._is_up(source) and trunk.hear(_senders(message), self._now()):
                self._set(source, trunk.addresses, True)
        targets = self._targets(source, message)
        stage = self.stage
        if stage is None:
            return self._hand_over(targets, message)
        copies = 0
        for each in _apart(message):
            passed, more = stage.admit(source, targets, each)
            copies += more + self._hand_over(passed, each)
        return copies

    def _hand_over(self, targets: Sequence[FabricPort], message: Message) -> int:
        """Hand a message to ports; returns the copies that receivers made."""
        statistics = self.statistics
        if not targets:
            statistics.lost += _count(message)
            return 0
        statistics.delivered += _count(message) if isinstance(message, Frames) else 1
        copies = 0
        for port in targets:
            try:
                copies += port.receive(message)
            except Exception:
                # The others get the message although one port failed on it.
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
            # Of two ports with one address, each means itself by it.
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
        if source in owners or source in self._trunks:
            owners = [port for port in owners if port in others]
        return owners or others


def _apart(message: Message) -> list[Message]:
    """Return the messages that faults take one by one: of a burst of packets each."""
    if not isinstance(message, Frames) or not message.packets:
        return [message]
    found: list[Message] = []
    for train in message.trains:
        for frame in train.frames:
            found.append(Frames(message.address, [Train([frame])]))
            found[-1].work = message.work
    return found


def _count(message: Message) -> int:
    """Count the messages that a message stands for: of a burst of packets each, faults or none."""
    if isinstance(message, Frames) and message.packets:
        return sum(len(train.frames) for train in message.trains)
    return 1


def _senders(message: Frames) -> list[bytes]:
    """Return the addresses that frames speak for; those of a train have the same."""
    return [
        address
        for train in message.trains
        for frame in train.frames[:1]
        for address in senders(frame)
    ]
