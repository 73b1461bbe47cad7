"""The requests of clients, parsed and in their order at each chunk; sessions and shared state."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from bluebridge.device.layout.net.rtrs import MessageFlag, MessageType
from bluebridge.guest.protocols.rtrs.engine.actions import Action, Direction, Memory, Serve
from bluebridge.guest.protocols.rtrs.engine.connection import (
    DESCRIPTOR,
    LONGEST_MESSAGE,
    READ,
    WRITE,
    Alarms,
    EngineConnection,
)
from bluebridge.guest.protocols.rtrs.engine.server.messages import acceptance, check
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings

_USUAL_USER: Final = 64
"""The bytes of a user message that the first read of a chunk takes."""
_READ_TYPE: Final = int(MessageType.READ)
_WRITE_TYPE: Final = int(MessageType.WRITE)
_NEED_INVAL: Final = int(MessageFlag.NEED_INVAL)


class BadRequest(Exception):
    """A request violates the protocol; the text says what is wrong."""


class Message(NamedTuple):
    """The request in a chunk, which asks for `answer` bytes at `address` with `rkey`.

    `answer` 0 asks for none.
    """

    direction: Direction
    length: int
    user: bytes
    answer: int
    address: int
    rkey: int
    need_inval: bool


def read_request(memory: Memory, session: int, chunk: int, offset: int, chunk_size: int) -> Message:
    """Parse the request whose message is `offset` bytes into a chunk; raises `BadRequest`."""
    first = max(0, offset - _USUAL_USER)
    end = min(chunk_size, offset + LONGEST_MESSAGE)
    data = memory.read(session, chunk, first, end - first)
    message = data[offset - first :]
    if len(message) < WRITE.size:
        raise BadRequest(f"a message {offset} bytes into a chunk of {chunk_size}")
    kind, user_length = WRITE.unpack_from(message)
    if user_length > offset:
        raise BadRequest(f"a user message of {user_length} bytes before byte {offset}")
    if user_length <= _USUAL_USER:
        user = data[offset - first - user_length : offset - first]
    else:
        user = memory.read(session, chunk, offset - user_length, user_length)
    length = offset - user_length
    if kind == _WRITE_TYPE:
        return Message(Direction.WRITE, length, user, 0, 0, 0, False)
    if kind == _READ_TYPE:
        return _read(message, length, user)
    raise BadRequest(f"a message of type {kind}")


def _read(message: bytes, length: int, user: bytes) -> Message:
    if len(message) < READ.size:
        raise BadRequest("a read message longer than its chunk")
    _kind, _user_length, flags, count = READ.unpack_from(message)
    if not count:
        return Message(Direction.READ, length, user, 0, 0, 0, False)
    if count > 1 or len(message) < LONGEST_MESSAGE:
        raise BadRequest(f"a read message with {count} descriptors")
    address, rkey, answer = DESCRIPTOR.unpack_from(message, READ.size)
    if not 0 < answer <= length:
        raise BadRequest(f"an answer of {answer} bytes to a read of {length}")
    return Message(Direction.READ, length, user, answer, address, rkey, bool(flags & _NEED_INVAL))


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


class Shared:
    """The common state of one server: memory, settings, actions, alarms and operations.

    Raises `ValueError` for invalid settings.
    """

    def __init__(self, memory: Memory, settings: ServerSettings) -> None:
        check(settings)
        self.memory = memory
        self.settings = settings
        self.acceptance = acceptance(settings)
        self.outbox: list[Action] = []
        self.alarms = Alarms()
        self.operations: dict[int, Operation] = {}
        self.waiting: set[int] = set()
        """The numbers of the paths that wait for the end of operations."""
        self._last = 0

    def serve(self, operation: Operation, session: int) -> None:
        """Give an operation to the layer above."""
        message = operation.message
        if message is None:
            return
        self._last += 1
        operation.number = self._last
        self.operations[self._last] = operation
        chunk, user = operation.chunk, message.user
        serve = Serve(self._last, session, chunk, message.direction, message.length, user)
        self.outbox.append(serve)


class Session:
    """A session: its chunks, and the name that the client gives with its first INFO_REQ."""

    def __init__(self, number: int, uuid: bytes) -> None:
        self.number = number
        self.uuid = uuid
        self.name = ""
        self.chunk_use = ChunkUse()
        self.up = 0
        """The number of connected paths."""
