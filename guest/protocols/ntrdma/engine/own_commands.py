"""The operations of users on own resources, and the commands that describe these to the peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode
from bluebridge.guest.protocols.ntrdma.engine.actions import Operation
from bluebridge.guest.protocols.ntrdma.engine.command_ring import CommandRequests
from bluebridge.guest.protocols.ntrdma.engine.entries import SEGMENT
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.protocols.ntrdma.engine.regions import Domain, Region
from bluebridge.guest.protocols.ntrdma.engine.sends import SendRequest


def attributes(pair: QueuePair) -> dict[str, Value]:
    """Return the values of a QP_MODIFY for a queue pair."""
    return {
        "pd_key": pair.domain.key,
        "key": pair.key,
        "state": int(pair.state),
        "access": pair.access | layout.ACCESS_TOLD,
        "peer_key": pair.peer_key,
    }


def succeeded(response: bytes | None) -> bool:
    """Return True if a response says OK, or is None since the peer has gone."""
    if response is None:
        return True
    keyed = CommandCode.MR_CREATE <= layout.RESPONSE.get(response, "op") <= CommandCode.QP_MODIFY
    form = layout.KEYED_RESPONSE if keyed else layout.RESPONSE
    return form.get(response, "status") == layout.OK


def region_commands(region: Region) -> Iterator[bytearray]:
    """Yield the commands that make the twin of a region, without its domain."""
    segments, first = region.segments, layout.CREATE_SEGMENTS
    count = min(len(segments), first)
    command = layout.MR_CREATE.pack(
        op=CommandCode.MR_CREATE,
        key=region.key,
        access=region.access,
        address=region.address,
        length=region.length,
        capacity=len(segments),
        count=count,
    )
    for number in range(count):
        SEGMENT.pack_into(command, layout.CREATE_LIST + number * SEGMENT.size, *segments[number])
    yield command
    for start in range(first, len(segments), layout.APPEND_SEGMENTS):
        part = segments[start : start + layout.APPEND_SEGMENTS]
        command = layout.MR_APPEND.pack(
            op=CommandCode.MR_APPEND,
            key=region.key,
            capacity=len(segments),
            position=start,
            count=len(part),
        )
        for number, segment in enumerate(part):
            SEGMENT.pack_into(command, layout.APPEND_LIST + number * SEGMENT.size, *segment)
        yield command


class OwnCommands:
    """Posts commands about own resources to the peer, if there is one."""

    def __init__(self, peer: Peer, requests: CommandRequests) -> None:
        self._peer, self._requests = peer, requests
        self.unsent: deque[Operation] = deque()
        """The operations that wait for no answer, since there is no peer."""
        self.draining = False
        """True while the peer is being parted from: what is posted ends when that is over."""

    def post(self, command: bytes | bytearray, operation: Operation) -> None:
        """Post a command of an operation."""
        if self._peer.ready or self.draining:
            self._requests.post(command, operation)
        else:
            self.unsent.append(operation)

    def post_region(self, domain: int, region: Region, operation: Operation) -> None:
        """Post the commands that make the twin of a region in a protection domain."""
        commands = list(region_commands(region))
        operation.left = len(commands)
        for command in commands:
            layout.RESPONSE.set(command, "pd_key", domain)
            self.post(command, operation)

    def ahead(self, now: float) -> bool:
        """Send what is posted; True if the peer carries it out before all that follows."""
        if self._peer.ready:
            self._requests.flush(now)
        return self._peer.ordered and not self._requests.waiting


class Undo(Operation):
    """The end of something at the peer, of which this side has nothing left."""

    def __init__(self) -> None:
        super().__init__(lenient=True)


class CreateDomain(Operation):
    """The making of a protection domain, which is forgotten if the peer refuses."""

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self.domain = domain


class Register(Operation):
    """A registration, which is ended again if the peer refuses."""

    def __init__(self, domain: Domain, region: Region) -> None:
        super().__init__()
        self.domain, self.region = domain, region


class LocalWork(Operation):
    """A REG_MR or, lenient, a LOCAL_INV of a queue pair, which completes with the answer."""

    def __init__(self, pair: QueuePair, request: SendRequest, lenient: bool) -> None:
        super().__init__(lenient)
        self.pair, self.request, self.epoch = pair, request, pair.epoch


class CreateTwin(Operation):
    """The making of a twin, the one after `epoch` others; the queue pair stays if refused."""

    def __init__(self, pair: QueuePair, lenient: bool = False) -> None:
        super().__init__(lenient)
        self.pair, self.epoch = pair, pair.epoch


class CreatePair(CreateTwin):
    """The making of a queue pair, which is removed again if the peer refuses its twin."""


class ResetPair(CreateTwin):
    """The deletion of a twin, whatever the peer says, and then the making of another."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(pair, lenient=True)
        self.deleted = False


class RemovePair(Operation):
    """The deletion of a twin, after which the queue pair is freed."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(lenient=True)
        self.pair = pair


class StopPair(Operation):
    """The way to the error state: what is posted is flushed once the peer has stopped."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(lenient=True)
        self.pair, self.epoch = pair, pair.epoch
