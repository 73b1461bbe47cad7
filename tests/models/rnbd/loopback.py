"""RTRS without RDMA: a client's and a server's engine of RNBD joined in one process.

Requests wait until `run` carries them out, in an order that a seed chooses.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bluebridge.guest.protocols.rnbd.engine.client import RnbdClient
from bluebridge.guest.protocols.rnbd.engine.server import Export, RnbdServer
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Closed,
    Direction,
    Finished,
    LinkChanged,
    Opened,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

SESSION = 7
HEADER = 4096


@dataclass
class Waiting:
    """A request that the server has not seen."""

    permit: Permit
    direction: Direction
    user: bytes
    length: int


class Transport:
    """Both ends: what the client's and the server's engine call, and their memory."""

    def __init__(self, queue_depth: int = 8, max_io_size: int = 126976, seed: int = 0) -> None:
        self.name = "loop"
        self.max_io_size = max_io_size
        self.connected = True
        self.depth = queue_depth
        self.waiting: list[Waiting] = []
        self.refuse_next = 0
        self.seen: list[bytes] = []
        self._random = random.Random(seed)
        self._free = list(range(queue_depth))
        self._held: set[int] = set()
        self._slots = [bytearray(max_io_size) for _ in range(queue_depth)]
        self._chunks = [bytearray(max_io_size + HEADER) for _ in range(queue_depth)]
        self._answers: dict[int, int] = {}
        self._next_operation = 1

    @property
    def free(self) -> int:
        """Permits that nobody has."""
        return len(self._free)

    def data(self, slot: int) -> memoryview:
        """The client's memory; only who has the permit may ask."""
        assert slot in self._held
        return memoryview(self._slots[slot])

    def view(self, session: int, chunk: int) -> memoryview:
        assert session == SESSION
        return memoryview(self._chunks[chunk])

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None:
        if not self._free:
            return None
        slot = self._free.pop(self._random.randrange(len(self._free)))
        self._held.add(slot)
        return Permit(slot, cpu, admin)

    def put_permit(self, permit: Permit) -> None:
        self._held.remove(permit.slot)
        self._free.append(permit.slot)

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int:
        """Refused without a connection, and `refuse_next` if that is set."""
        assert permit.slot in self._held and length <= self.max_io_size
        if self.refuse_next:
            refused, self.refuse_next = self.refuse_next, 0
            return refused
        if not self.connected:
            return errno.ECONNABORTED
        self.seen.append(bytes(user))
        self.waiting.append(Waiting(permit, direction, bytes(user), length))
        return 0

    def respond(self, operation: int, errno: int, now: float) -> None:
        assert operation not in self._answers
        self._answers[operation] = errno

    def run(self, server: RnbdServer, now: float) -> Finished:
        """Carry out one request that waits."""
        item = self.waiting.pop(self._random.randrange(len(self.waiting)))
        slot = item.permit.slot
        if item.direction == Direction.WRITE:
            self._chunks[slot][: item.length] = self._slots[slot][: item.length]
        wrong = self.serve(server, slot, item.direction, item.length, item.user, now)
        if item.direction == Direction.READ:
            self._slots[slot][: item.length] = self._chunks[slot][: item.length]
        return Finished(slot, wrong)

    def serve(
        self,
        server: RnbdServer,
        chunk: int,
        direction: Direction,
        length: int,
        user: bytes,
        now: float = 0.0,
    ) -> int:
        """Put a request before the server: its answer."""
        operation = self._next_operation
        self._next_operation += 1
        server.handle(Serve(operation, SESSION, chunk, direction, length, user), now)
        return self._answers.pop(operation)


class Loopback:
    """A client and a server; `pump` lets them work until nothing is left to do."""

    def __init__(
        self, exports: Iterable[Export], queue_depth: int = 8, seed: int = 0, size: int = 126976
    ) -> None:
        self.lines: list[str] = []
        self.transport = Transport(queue_depth, size, seed)
        self.server = RnbdServer(
            self.transport.respond, self.transport.view, exports, self.lines.append
        )
        self.client = RnbdClient(self.transport, self.transport.data, self.lines.append)
        self.now = 0.0
        self.server.handle(SessionUp(SESSION, "loop"), self.now)

    def open(self) -> None:
        """RTRS has its paths."""
        self.client.handle(Opened(None, 0), self.now)

    def step(self) -> bool:
        """Carry out one request; False if none waits."""
        if not self.transport.waiting:
            return False
        self.client.handle(self.transport.run(self.server, self.now), self.now)
        return True

    def pump(self, handle: Callable[[], None] = lambda: None) -> None:
        """Carry out everything; `handle` takes the client's actions after each request."""
        handle()
        while self.step():
            handle()

    def link_down(self) -> None:
        """The last path is gone: what is in flight fails."""
        self.transport.connected = False
        lost, self.transport.waiting = self.transport.waiting, []
        for item in lost:
            self.client.handle(Finished(item.permit.slot, errno.ECONNABORTED), self.now)
        self.client.handle(LinkChanged(False), self.now)

    def link_up(self, *, same_session: bool = True) -> None:
        """A path is connected again; the server may have ended the session meanwhile."""
        if not same_session:
            self.server.handle(SessionDown(SESSION), self.now)
            self.server.handle(SessionUp(SESSION, "loop"), self.now)
        self.transport.connected = True
        self.client.handle(LinkChanged(True), self.now)

    def close(self) -> None:
        """RTRS has ended the session."""
        self.client.handle(Closed(), self.now)
