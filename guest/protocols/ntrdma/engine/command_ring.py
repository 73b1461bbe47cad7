"""Both ends of the command ring: one sends with a time limit, the other executes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bluebridge.device.layout.ntrdma.commands import COMMAND_SIZE, RESPONSE_SIZE
from bluebridge.device.layout.ntrdma.port import COMMAND_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.indices import advanced, distance, valid
from bluebridge.guest.protocols.ntrdma.engine.memory import Ring, Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

COMMAND_SECONDS = 5.0
"""The seconds that the peer may take for a command."""
Done = Callable[[bytes | None], None]
"""A call that takes the response, or None when there will be none."""


class CommandRequests:
    """The commands to the peer: as many as the ring has room for are outstanding, more wait."""

    def __init__(self, transport: Transport, words: Words, peer: Peer) -> None:
        self.commands = Ring(transport, COMMAND_CAPACITY, COMMAND_SIZE)
        self.responses = Ring(transport, COMMAND_CAPACITY, RESPONSE_SIZE)
        self.index = words.allocate()
        self._peer = peer
        self._waiting: deque[tuple[bytes, Done]] = deque()
        self._sent: deque[tuple[float, Done]] = deque()
        self._produced = self.consumed = 0

    @property
    def deadline(self) -> float:
        """The time at which the oldest command has taken too long; infinity without commands."""
        return self._sent[0][0] if self._sent else float("inf")

    @property
    def waiting(self) -> bool:
        """True while commands wait for room in the ring."""
        return bool(self._waiting)

    def post(self, command: bytes | bytearray, done: Done) -> None:
        """Queue a command; it leaves with the next `flush`."""
        self._waiting.append((bytes(command), done))

    def flush(self, now: float) -> None:
        """Copy what fits to the peer, and ring."""
        first = self._produced
        capacity = self._peer.command_capacity
        while self._waiting and len(self._sent) < capacity:
            command, done = self._waiting.popleft()
            self.commands.put(self._produced, command)
            self._produced = advanced(self._produced, 1, COMMAND_CAPACITY)
            self._sent.append((now + COMMAND_SECONDS, done))
        count = distance(first, self._produced, COMMAND_CAPACITY)
        if count:
            self.commands.push(self._peer.commands, first, count)
            peer = self._peer
            peer.publish(peer.command_produced, self._produced, peer.bell_command)

    def take_responses(self) -> bool:
        """Report the responses that came; returns False for an impossible index."""
        index = self.index.get()
        count = distance(self.consumed, index, COMMAND_CAPACITY)
        if index >= 2 * COMMAND_CAPACITY or count > len(self._sent):
            return False
        for _ in range(count):
            response = self.responses.entry(self.consumed)
            self.consumed = advanced(self.consumed, 1, COMMAND_CAPACITY)
            self._sent.popleft()[1](response)
        return True

    def fail(self) -> None:
        """Report to all outstanding commands that no response will come."""
        outstanding = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for _, done in outstanding:
            done(None)

    def restart(self) -> None:
        """Begin with an empty ring."""
        self._produced = self.consumed = 0
        self.index.set(0)


class CommandExecution:
    """Executes the peer's commands by `execute`, which returns the response."""

    def __init__(
        self, transport: Transport, words: Words, peer: Peer, execute: Callable[[bytes], bytes]
    ) -> None:
        self.commands = Ring(transport, COMMAND_CAPACITY, COMMAND_SIZE)
        self.index = words.allocate()
        self._responses = Ring(transport, COMMAND_CAPACITY, RESPONSE_SIZE)
        self._peer = peer
        self._execute = execute
        self.consumed = 0

    def serve(self) -> bool:
        """Execute the commands that came; returns False for an impossible index."""
        index, first = self.index.get(), self.consumed
        if not valid(first, index, COMMAND_CAPACITY):
            return False
        count = distance(first, index, COMMAND_CAPACITY)
        for _ in range(count):
            response = self._execute(self.commands.entry(self.consumed))
            self._responses.put(self.consumed, response)
            self.consumed = advanced(self.consumed, 1, COMMAND_CAPACITY)
        if count:
            peer = self._peer
            self._responses.push(peer.responses, first, count)
            peer.publish(peer.response_index, self.consumed, peer.bell_response)
        return True

    def restart(self, start: int = 0) -> None:
        """Begin with an empty ring, at the index at which the peer's ring stands."""
        self.consumed = start
        self.index.set(start)
