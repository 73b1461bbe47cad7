"""The operations of users on own resources, and the commands that describe these to the peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode
from bluebridge.guest.protocols.ntrdma.engine.actions import Operation
from bluebridge.guest.protocols.ntrdma.engine.command_ring import CommandRequests
from bluebridge.guest.protocols.ntrdma.engine.entries import SEGMENT
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.protocols.ntrdma.engine.regions import Domain, Region, Segment
from bluebridge.guest.protocols.ntrdma.engine.sends import SendRequest

Posted = TypeVar("Posted", bound=Operation)


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


class PairOperation(Operation):
    """An operation on a queue pair after `epoch` deletions of its twin."""

    def __init__(self, pair: QueuePair, lenient: bool = False) -> None:
        super().__init__(lenient)
        self.pair, self.epoch = pair, pair.epoch


class LocalWork(PairOperation):
    """A REG_MR or, lenient, a LOCAL_INV of a queue pair, which completes with the answer."""

    def __init__(self, pair: QueuePair, request: SendRequest, lenient: bool) -> None:
        super().__init__(pair, lenient)
        self.request = request


class CreateTwin(PairOperation):
    """The making of a twin; the queue pair stays if the peer refuses."""


class CreatePair(CreateTwin):
    """The making of a queue pair, which is removed again if the peer refuses its twin."""


class ResetPair(CreateTwin):
    """The deletion of a twin, whatever the peer says, and then the making of another."""

    deleted = False


class RemovePair(PairOperation):
    """The deletion of a twin, after which the queue pair is freed."""


class StopPair(PairOperation):
    """The way to the error state: what is posted is flushed once the peer has stopped."""


class AskExtensions(Operation):
    """The question which extensions the peer knows."""


class Resolve(Operation):
    """The question whether an address is the peer's, which nobody answers where no peer is."""


def succeeded(response: bytes | None) -> bool:
    """Return True if a response says OK, or is None since the peer has gone."""
    if response is None:
        return True
    keyed = CommandCode.MR_CREATE <= layout.RESPONSE.get(response, "op") <= CommandCode.QP_MODIFY
    form = layout.KEYED_RESPONSE if keyed else layout.RESPONSE
    return form.get(response, "status") == layout.OK


def region_commands(domain: int, region: Region) -> Iterator[bytearray]:
    """Yield the commands that make the twin of a region in a protection domain."""
    segments, first = region.segments, layout.CREATE_SEGMENTS
    yield _with_segments(
        layout.MR_CREATE.pack(
            op=CommandCode.MR_CREATE,
            pd_key=domain,
            key=region.key,
            access=region.access,
            address=region.address,
            length=region.length,
            capacity=len(segments),
            count=min(len(segments), first),
        ),
        layout.CREATE_LIST,
        segments[:first],
    )
    for start in range(first, len(segments), layout.APPEND_SEGMENTS):
        part = segments[start : start + layout.APPEND_SEGMENTS]
        command = layout.MR_APPEND.pack(
            op=CommandCode.MR_APPEND,
            pd_key=domain,
            key=region.key,
            capacity=len(segments),
            position=start,
            count=len(part),
        )
        yield _with_segments(command, layout.APPEND_LIST, part)


def _with_segments(command: bytearray, start: int, segments: list[Segment]) -> bytearray:
    for number, segment in enumerate(segments):
        SEGMENT.pack_into(command, start + number * SEGMENT.size, *segment)
    return command


class OwnCommands:
    """Posts commands about own resources to the peer, if there is one."""

    def __init__(self, peer: Peer, requests: CommandRequests) -> None:
        self._peer, self._requests = peer, requests
        self.unsent: deque[Operation] = deque()
        """The operations that wait for no answer, since there is no peer."""
        self.draining = False
        """True while the peer is being parted from: what is posted ends when that is over."""

    def post(self, command: bytes | bytearray, operation: Posted) -> Posted:
        """Post a command of an operation, which is returned."""
        if self._peer.ready or self.draining:
            self._requests.post(command, operation)
        else:
            self.unsent.append(operation)
        return operation

    def post_region(self, domain: Domain, region: Region, operation: Operation) -> Operation:
        """Post the commands that make the twin of a region in a protection domain."""
        commands = list(region_commands(domain.key, region))
        operation.left = len(commands)
        for command in commands:
            self.post(command, operation)
        return operation

    def ahead(self, now: float) -> bool:
        """Send what is posted; True if the peer carries it out before all that follows."""
        if self._peer.ready:
            self._requests.flush(now)
        return self._peer.ordered and not self._requests.waiting
