"""Verified traffic and the memory that it goes to, the simplest layers above RTRS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bluebridge.guest.protocols.rtrs.engine.actions import Direction, Serve
from bluebridge.guest.protocols.rtrs.engine.interface import Permit
from bluebridge.guest.protocols.rtrs.transport.transport import ClientSide

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


def pattern(block: int, size: int) -> bytes:
    """Return the bytes of block `block`: its number, repeated."""
    return block.to_bytes(8, "little") * (size // 8) + bytes(size % 8)


@dataclass(slots=True)
class Totals:
    """The sums of a run of traffic: `latencies` in seconds, one for each request."""

    requests: int = 0
    moved: int = 0
    errors: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Block:
    number: int
    permit: Permit
    begun: float
    direction: Direction


class Traffic:
    """A run of `count` blocks of `size` bytes, `depth` at a time.

    `done` is called after the last block. Every `Finished` of the session goes to `finished`.
    """

    def __init__(
        self, side: ClientSide, count: int, size: int, depth: int, done: Callable[[], None]
    ) -> None:
        self.totals = Totals()
        self._side = side
        self._engine = side.engine
        self._count = count
        self._size = size
        self._depth = depth
        self._done = done
        self._next = 0
        self._over = 0
        self._running: dict[int, _Block] = {}
        self._begun = 0.0

    def start(self, now: float) -> None:
        """Start as many blocks as may be in flight."""
        self._begun = now
        self._fill(now)

    def finished(self, slot: int, errno: int) -> None:
        """Take the end of the request in `slot`."""
        now = time.monotonic()
        block = self._running.pop(slot)
        totals = self.totals
        totals.requests += 1
        totals.latencies.append(now - block.begun)
        if errno:
            totals.errors += 1
        else:
            totals.moved += self._size
        if not errno and block.direction is Direction.WRITE:
            self._request(block, Direction.READ, now)
            self._fill(now)
            return
        if not errno and self._side.slots.data(slot)[: self._size] != pattern(
            block.number, self._size
        ):
            totals.mismatches += 1
        self._engine.put_permit(block.permit)
        self._over += 1
        self._fill(now)

    def _fill(self, now: float) -> None:
        while self._next < self._count and len(self._running) < self._depth:
            permit = self._engine.get_permit()
            if permit is None:
                break
            block = _Block(self._next, permit, now, Direction.WRITE)
            self._next += 1
            data = self._side.slots.data(permit.slot)
            data[: self._size] = pattern(block.number, self._size)
            self._request(block, Direction.WRITE, now)
        if self._over == self._count:
            self.totals.seconds = now - self._begun
            self._done()

    def _request(self, block: _Block, direction: Direction, now: float) -> None:
        if direction is Direction.READ:
            self._side.slots.data(block.permit.slot)[: self._size] = bytes(self._size)
        block.begun, block.direction = now, direction
        self._running[block.permit.slot] = block
        message = user_message(block.number * self._size)
        errno = self._engine.request(direction, block.permit, message, self._size, now)
        if errno:
            del self._running[block.permit.slot]
            self.totals.errors += 1
            self._engine.put_permit(block.permit)
            self._over += 1
