"""Operations in progress, at most one of which the layer above has for each chunk."""

from __future__ import annotations

from typing import Protocol

from bluebridge.guest.rtrs.engine.connection import Connection
from bluebridge.guest.rtrs.engine.server.requests import Message


class Operation:
    """A request from its immediate to its response; `offset` is where its message begins."""

    def __init__(self, path: Answering, connection: Connection, chunk: int, offset: int) -> None:
        self.path = path
        self.connection = connection
        self.chunk = chunk
        self.offset = offset
        self.message: Message | None = None
        """None until the end of the chunk's key is confirmed."""
        self.number = 0
        """The layer above has it by this number; 0: not yet, or no more."""
        self.errno = 0


class Answering(Protocol):
    """A path, as far as its operations are concerned."""

    alive: bool
    """Whether answers can still reach the client."""

    @property
    def chunk_use(self) -> ChunkUse:
        """Of its session."""

    def serve(self, operation: Operation) -> None:
        """Give it to the layer above."""

    def answer(self, operation: Operation) -> None:
        """Respond to it, if the path is alive; it is over."""


class ChunkUse:
    """Whose turn it is at each chunk of a session.

    A client has one request for a chunk at a time. A second one on another path while the first
    is in progress repeats it: the client has given the first path up. The two are served one
    after the other, and responses wait for the last of them, since from a response on the client
    may write another request into the chunk. So no request is served twice at a time, and none
    from a chunk that is being written. A repeated request whose path is dead by its turn is
    dropped.
    """

    def __init__(self) -> None:
        self._turns: dict[int, list[Operation]] = {}
        """By chunk: operations in order of arrival, the first of them with the layer above."""
        self._held: dict[int, list[Operation]] = {}
        """By chunk: operations that are done and wait for those after them."""

    def begin(self, operation: Operation) -> None:
        """Serve an operation when it is its turn."""
        turns = self._turns.get(operation.chunk)
        if turns is None:
            self._turns[operation.chunk] = [operation]
            operation.path.serve(operation)
        else:
            turns.append(operation)

    def done(self, operation: Operation) -> None:
        """The layer above is done with the operation whose turn it was."""
        chunk = operation.chunk
        turns = self._turns[chunk]
        if len(turns) == 1 and chunk not in self._held:
            del self._turns[chunk]
            operation.path.answer(operation)
            return
        held = self._held.setdefault(chunk, [])
        held.append(turns.pop(0))
        while turns and not turns[0].path.alive:
            held.append(turns.pop(0))
        if turns:
            turns[0].path.serve(turns[0])
            return
        del self._turns[chunk], self._held[chunk]
        for one in held:
            one.path.answer(one)
