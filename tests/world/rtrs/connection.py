"""Reliable connections over wires that may fall silent, as RC queue pairs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Invalidate,
    Received,
    Register,
    Send,
    SendInvalidate,
    WorkRequest,
    WriteChunk,
    WriteImmediate,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from tests.world.clock import Clock
from tests.world.rtrs.memory import AccessError, Keys

RETRY = 0.5
RETRY_LIMIT = 4.0
"""A message that is not acknowledged within this time breaks its connection."""
NOT_READY = 0.01
BATCH = 32
"""Completions of one connection before others have their turn."""


class Wire:
    """Between a client's address and a server's; `passes[0]` is the way to the server."""

    def __init__(self) -> None:
        self.passes = [True, True]

    def silence(self, *ways: int) -> None:
        for way in ways:
            self.passes[way] = False


class Host(Protocol):
    """A machine, as far as its connections need it."""

    keys: Keys

    @property
    def engine(self) -> Engine: ...

    def perform(self) -> None: ...

    def source(self, request: WriteRequest | WriteChunk) -> bytes:
        """The bytes that a request writes, as they are in memory now."""

    def completed(self) -> None: ...

    def peer_ended(self, number: int) -> None: ...


class End:
    """One end of a connection, which works off its send queue one request after another.

    Its completions, of both directions, wait in one queue until its host looks.
    """

    def __init__(
        self, clock: Clock, source: random.Random, host: Host, number: int, wire: Wire, way: int
    ) -> None:
        self._clock = clock
        self._random = source
        self.host = host
        self.number = number
        self.wire = wire
        self.way = way
        self.peer: End | None = None
        self.ready = False
        self.dead = False
        """In error, or gone: nothing is sent or taken."""
        self.over = False
        """Drained: the host does not look any more."""
        self._receives: deque[int] = deque()
        self._queue: deque[WorkRequest] = deque()
        self._completions: deque[Callable[[float], None]] = deque()
        self._busy = False
        self._stage = 0
        self._failing_since: float | None = None
        self.limit_receives = 0
        self.limit_sends = 0
        self._unretired = 0
        self._groups: deque[int] = deque()
        self._group = 0

    def post_receives(self, count: int, length: int) -> None:
        """Receives of `length` bytes."""
        if self.dead:
            return
        self._receives.extend([length] * count)
        assert len(self._receives) <= self.limit_receives, "receive queue overflows"

    def post(self, requests: list[WorkRequest]) -> None:
        """Work requests; the queue's size is what the engine asked for."""
        if self.dead:
            return
        assert len(self._queue) < 10000
        for request in requests:
            self._queue.append(request)
            self._unretired += 1
            self._group += 1
            if request.token:
                self._groups.append(self._group)
                self._group = 0
        assert self._unretired <= self.limit_sends, "send queue overflows"
        self._go()

    def kill(self) -> None:
        """Error state: what is posted is forgotten."""
        self.dead = True
        self._queue.clear()
        self._receives.clear()

    def break_off(self, reason: str) -> None:
        """Error state, of which the host is told."""
        if not self.dead:
            self.kill()
            number = self.number
            self._complete(lambda now: self.host.engine.failed(number, reason, now))

    def drain(self) -> None:
        """The last look at the completions, which may miss some."""
        self.kill()
        if self._random.random() < 0.5:
            self.look()
        self.over = True
        self._completions.clear()

    def _go(self) -> None:
        if not self._busy and self._queue and not self.dead:
            self._busy = True
            self._clock.after(self._random.random() * 0.001, self._attempt)

    def _attempt(self) -> None:
        if self.dead:
            return
        request, peer = self._queue[0], self.peer
        try:
            if isinstance(request, Register | Invalidate):
                self._local(request)
            elif peer is None or peer.dead or not self.wire.passes[self.way]:
                self._again()
                return
            elif self._stage < 2:
                self._deliver(request, peer)
                return
            elif not self.wire.passes[1 - self.way]:
                self._again()
                return
        except AccessError as error:
            self.break_off(str(error))
            if peer is not None and not isinstance(request, Register | Invalidate):
                peer.kill()
            return
        self._done(request)

    def _done(self, request: WorkRequest) -> None:
        self._queue.popleft()
        self._busy, self._stage, self._failing_since = False, 0, None
        if request.token:
            token = request.token
            self._complete(lambda now: self._sent(token, now))
        self._go()

    def _sent(self, token: int, now: float) -> None:
        self._unretired -= self._groups.popleft()
        self.host.engine.sent(self.number, token, now)

    def _again(self) -> None:
        now = self._clock.now
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > RETRY_LIMIT:
            self.break_off("RETRY_EXC_ERR")
        else:
            self._clock.after(RETRY, self._attempt)

    def _local(self, request: Register | Invalidate) -> None:
        if isinstance(request, Register):
            self.host.keys.register(request.path, request.region, request.key, request.length)
        else:
            self.host.keys.invalidate(request.key)

    def _deliver(self, request: WorkRequest, peer: End) -> None:
        """Data in two steps, then what the peer is told."""
        self._failing_since = None
        if isinstance(request, WriteRequest | WriteChunk):
            data = self.host.source(request)
            half = len(data) // 2 if self._stage == 0 else 0
            end = half if self._stage == 0 else len(data)
            start = 0 if self._stage == 0 else len(data) // 2
            peer.host.keys.write(
                request.rkey, request.remote_address + start, memoryview(data)[start:end]
            )
            if self._stage == 0:
                self._stage = 1
                self._clock.after(self._random.random() * 0.001, self._attempt)
                return
        if not isinstance(request, WriteChunk) and not peer.take(request):
            self._clock.after(NOT_READY, self._attempt)
            return
        self._stage = 2
        self._clock.after(self._random.random() * 0.001, self._attempt)

    def take(self, request: WorkRequest) -> bool:
        """The peer's message uses up a receive; False: there is none. Raises `AccessError`."""
        if not self._receives:
            return False
        length = self._receives.popleft()
        received = _received(request)
        if received.invalidated is not None:
            self.host.keys.invalidate(received.invalidated)
        if len(received.data) > length:
            raise AccessError(f"{len(received.data)} bytes for a receive of {length}")
        self._complete(lambda now: self.host.engine.received(self.number, received, now))
        return True

    def _complete(self, event: Callable[[float], None]) -> None:
        self._completions.append(event)
        self.host.completed()

    def look(self) -> None:
        for _one in range(BATCH):
            if self.over or not self._completions:
                return
            self._completions.popleft()(self._clock.now)
            self.host.perform()

    @property
    def waits(self) -> bool:
        """Whether there are completions that the host has not seen."""
        return bool(self._completions) and not self.over


def _received(request: WorkRequest) -> Received:
    if isinstance(request, Send):
        return Received(request.data, request.immediate, None, False)
    if isinstance(request, SendInvalidate):
        return Received(b"", None, request.rkey, False)
    assert isinstance(request, WriteRequest | WriteImmediate)
    return Received(b"", request.immediate, None, True)
