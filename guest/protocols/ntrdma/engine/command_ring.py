"""Both ends of the command ring: one sends with a time limit, the other executes in order."""

from __future__ import annotations

from collections import deque

from bluebridge.device.layout.ntrdma.commands import COMMAND_SIZE, RESPONSE_SIZE
from bluebridge.device.layout.ntrdma.port import COMMAND_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.actions import Operation
from bluebridge.guest.protocols.ntrdma.engine.memory import Ring, Words, advanced, distance, valid
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

COMMAND_SECONDS = 5.0
"""The seconds that the peer may take for a command."""
Answer = tuple[Operation, bytes | None]
"""An operation, and the response to one of its commands, None when there will be none."""


class CommandRequests:
    """The commands to the peer: as many as the ring has room for are outstanding, more wait."""

    def __init__(self, transport: Transport, words: Words, peer: Peer) -> None:
        self.commands = Ring(transport, COMMAND_CAPACITY, COMMAND_SIZE)
        self.responses = Ring(transport, COMMAND_CAPACITY, RESPONSE_SIZE)
        self.index = words.allocate()
        self._peer = peer
        self._waiting: deque[tuple[bytes, Operation]] = deque()
        self._sent: deque[tuple[float, Operation]] = deque()
        self._produced = self.consumed = 0

    @property
    def deadline(self) -> float:
        """The time at which the oldest command has taken too long; infinity without commands."""
        return self._sent[0][0] if self._sent else float("inf")

    @property
    def waiting(self) -> bool:
        """True while commands wait for room in the ring."""
        return bool(self._waiting)

    def post(self, command: bytes | bytearray, operation: Operation) -> None:
        """Queue a command; it leaves with the next `flush`."""
        self._waiting.append((bytes(command), operation))

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
