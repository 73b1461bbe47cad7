"""A memory that clients write and read: the simplest layer above an RTRS server."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.guest.protocols.rtrs.engine.actions import Direction, Serve

OFFSET_BYTES = 8
"""The length of the user message, which is an offset in the store, little-endian."""
EINVAL, EIO = 22, 5

ViewOf = Callable[[int, int], memoryview]
"""The type of a call that returns the memory of a chunk, by session and chunk."""


def user_message(offset: int) -> bytes:
    """Return the user message of a request at `offset` of the store."""
    return offset.to_bytes(OFFSET_BYTES, "little")


class Store:
    """A memory of `size` bytes that the sessions of a server share."""

    def __init__(self, size: int) -> None:
        self.memory = bytearray(size)

    def serve(self, action: Serve, view_of: ViewOf) -> int:
        """Carry out a request; returns the errno to answer with."""
        if len(action.user) != OFFSET_BYTES:
            return EINVAL
        start = int.from_bytes(action.user, "little")
        if start + action.length > len(self.memory):
            return EIO
        view = view_of(action.session, action.chunk)
        if action.direction is Direction.WRITE:
            self.memory[start : start + action.length] = view[: action.length]
        else:
            view[: action.length] = self.memory[start : start + action.length]
        return 0
