"""Commands: the rings of them between two peers, and what this side asks for by them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import COMMAND_SIZE, RESPONSE_SIZE, CommandCode
from bluebridge.device.layout.ntrdma.port import COMMAND_CAPACITY
from bluebridge.guest.ntrdma.engine.memory import SEGMENT, Ring, Words, advanced, distance, valid
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.ntrdma.engine.regions import Domain, Region, Segment
from bluebridge.guest.ntrdma.engine.sends import SendRequest
from bluebridge.guest.ntrdma.engine.transport import Operation, Transport

COMMAND_SECONDS = 5.0
"""The seconds that the peer may take for a command."""
Answer = tuple[Operation, bytes | None]
"""An operation, and the response to one of its commands, None when there will be none."""

Posted = TypeVar("Posted", bound=Operation)


class CommandExecution:
    """The peer's commands, in order, and this side's responses to them."""

    def __init__(self, transport: Transport, words: Words, peer: Peer) -> None:
        self.commands = Ring(transport, COMMAND_CAPACITY, COMMAND_SIZE)
        self.index = words.allocate()
        self._responses = Ring(transport, COMMAND_CAPACITY, RESPONSE_SIZE)
        self._peer = peer
        self.consumed = 0

    def take(self) -> list[bytes] | None:
        """Return the commands that came, each read once; None for an impossible index."""
        index = self.index.get()
        if not valid(self.consumed, index, COMMAND_CAPACITY):
            return None
        count = distance(self.consumed, index, COMMAND_CAPACITY)
        places = (advanced(self.consumed, number, COMMAND_CAPACITY) for number in range(count))
        return [self.commands.entry(place) for place in places]

    def answer(self, responses: list[bytes]) -> None:
        """Copy the responses to the commands of the last `take` to the peer, and ring."""
        first, peer = self.consumed, self._peer
        for response in responses:
            self._responses.put(self.consumed, response)
            self.consumed = advanced(self.consumed, 1, COMMAND_CAPACITY)
        if responses:
            self._responses.push(peer.responses, first, len(responses))
            peer.publish(peer.response_index, self.consumed, peer.bell_response)

    def restart(self, start: int = 0) -> None:
        """Begin with an empty ring, at the index at which the peer's ring stands."""
        self.consumed = start
        self.index.set(start)


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
    """Commands about own resources to the peer, if there is one.

    As many as the ring has room for are outstanding, more wait.
    """

    def __init__(self, words: Words, peer: Peer) -> None:
        transport = peer.transport
        self.commands = Ring(transport, COMMAND_CAPACITY, COMMAND_SIZE)
        self.responses = Ring(transport, COMMAND_CAPACITY, RESPONSE_SIZE)
        self.index = words.allocate()
        self._peer = peer
        self.unsent: deque[Operation] = deque()
        """The operations that wait for no answer, since there is no peer."""
        self.draining = False
        """True while the peer is being parted from: what is posted ends when that is over."""
        self._waiting: deque[tuple[bytes, Operation]] = deque()
        self._sent: deque[tuple[float, Operation]] = deque()
        self._produced = self.consumed = 0

    @property
    def deadline(self) -> float:
        """The time at which the oldest command has taken too long; infinity without commands."""
        return self._sent[0][0] if self._sent else float("inf")

    def post(self, command: bytes | bytearray, operation: Posted) -> Posted:
        """Queue a command of an operation, which is returned; it leaves with the next `flush`."""
        if self._peer.ready or self.draining:
            self._waiting.append((bytes(command), operation))
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
            self.flush(now)
        return self._peer.ordered and not self._waiting

    def flush(self, now: float) -> None:
        """Copy what fits to the peer, and ring."""
        first = self._produced
        capacity = self._peer.command_capacity
        while self._waiting and len(self._sent) < capacity:
            command, operation = self._waiting.popleft()
            self.commands.put(self._produced, command)
            self._produced = advanced(self._produced, 1, COMMAND_CAPACITY)
            self._sent.append((now + COMMAND_SECONDS, operation))
        count = distance(first, self._produced, COMMAND_CAPACITY)
        if count:
            self.commands.push(self._peer.commands, first, count)
            peer = self._peer
            peer.publish(peer.command_produced, self._produced, peer.bell_command)

    def take_responses(self) -> list[Answer] | None:
        """Return the responses that came, in order; None for an impossible index."""
        index = self.index.get()
        count = distance(self.consumed, index, COMMAND_CAPACITY)
        if index >= 2 * COMMAND_CAPACITY or count > len(self._sent):
            return None
        answers: list[Answer] = []
        for _ in range(count):
            response = self.responses.entry(self.consumed)
            self.consumed = advanced(self.consumed, 1, COMMAND_CAPACITY)
            answers.append((self._sent.popleft()[1], response))
        return answers

    def fail(self) -> list[Answer]:
        """Forget all outstanding commands, whose responses will not come."""
        outstanding: list[Answer] = [(each[1], None) for each in (*self._sent, *self._waiting)]
        self._sent.clear()
        self._waiting.clear()
        return outstanding

    def restart(self) -> None:
        """Begin with an empty ring."""
        self._produced = self.consumed = 0
        self.index.set(0)
