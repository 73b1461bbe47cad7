"""Parsing of the requests that clients write into chunks, whose bytes are read once and checked."""

from __future__ import annotations

from typing import Final, NamedTuple

from bluebridge.device.layout.net.rtrs import MessageFlag, MessageType
from bluebridge.guest.protocols.rtrs.engine.actions import Direction, ServerMemory
from bluebridge.guest.protocols.rtrs.engine.formats import DESCRIPTOR, LONGEST_MESSAGE, READ, WRITE

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


def read_request(
    memory: ServerMemory, session: int, chunk: int, offset: int, chunk_size: int
) -> Message:
    """Parse the request whose message begins `offset` bytes into a chunk.

    Raises `BadRequest`.
    """
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
