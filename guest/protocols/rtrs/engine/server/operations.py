"""The operations in progress, of which the layer above has at most one for each chunk."""

from __future__ import annotations

from typing import Protocol

from bluebridge.guest.protocols.rtrs.engine.connection import EngineConnection
from bluebridge.guest.protocols.rtrs.engine.server.requests import Message


class Operation:
    """A request from its immediate to its response; `offset` is where its message begins."""

    def __init__(
        self, path: Answering, connection: EngineConnection, chunk: int, offset: int
    ) -> None:
        self.path = path
        self.connection = connection
        self.chunk = chunk
        self.offset = offset
        self.message: Message | None = None
        """The message of the request, None until the end of the chunk's key is confirmed."""
        self.number = 0
        """The number by which the layer above has the operation; 0 before and after that."""
        self.errno = 0
        self.over = False


class Answering(Protocol):
    """The part of a path that serves and answers its operations."""

    alive: bool
    """True while answers can still reach the client."""

    @property
    def chunk_use(self) -> ChunkUse:
        """The use of the session's chunks."""

    def serve(self, operation: Operation) -> None:
        """Give the operation to the layer above."""

    def answer(self, operation: Operation) -> None:
        """End the operation, with a response if the path is alive."""


class ChunkUse:
    """The order of operations at each chunk of a session.

    A client has one request for a chunk at a time. One that comes on another path while the chunk
    is in use repeats it: the client has given the earlier path up. So one operation for a chunk is
    with the layer above; the next one is the last that has come, and those between are not served.
    Responses wait until no operation for the chunk is left and all say how the last one ended,
    since from a response on the client may write another request into the chunk.

    A client that was told of a failure, because it had no path left, may have another request for
    the chunk as soon as a path is connected. So INFO_RSP of a path waits until all operations of
    its session are over that are in progress when it asks (`Path`).
    """

    def __init__(self) -> None:
        self._turns: dict[int, list[Operation]] = {}
        """The operations by chunk: first the one that the layer above has, then the later ones."""
        self._held: dict[int, list[Operation]] = {}
        """The operations by chunk that are over and wait for those after them."""

    def begin(self, operation: Operation) -> None:
        """Serve an operation when it is its turn."""
        turns = self._turns.get(operation.chunk)
        if turns is None:
            self._turns[operation.chunk] = [operation]
            operation.path.serve(operation)
        else:
            turns.append(operation)

    def done(self, operation: Operation) -> None:
        """Take the end of the operation that the layer above had."""
        chunk = operation.chunk
        turns = self._turns[chunk]
        if len(turns) == 1 and chunk not in self._held:
            del self._turns[chunk]
            operation.path.answer(operation)
            return
        held = self._held.setdefault(chunk, [])
        held.append(turns.pop(0))
        following = _last_to_serve(turns, held)
        if following is not None:
            self._turns[chunk] = [following]
            following.path.serve(following)
            return
        del self._turns[chunk], self._held[chunk]
        for one in held:
            one.errno = operation.errno
            one.path.answer(one)


def _last_to_serve(turns: list[Operation], held: list[Operation]) -> Operation | None:
    """Return the last operation whose client can still hear of it; all others go to `held`."""
    following = None
    for operation in reversed(turns):
        if operation.path.alive and following is None:
            following = operation
        else:
            held.append(operation)
    return following
