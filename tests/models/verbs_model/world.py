"""The model's world: two sides with their queue pairs, a cable between them, and a clock."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.values import (
    Answer,
    Completion,
    Memory,
    Protection,
    Receive,
    Request,
    Sge,
    Span,
    State,
)

PD = 1
ENTRIES = 16
"""Of each queue."""


class QueuePair(ABC):
    """What both halves of a queue pair know and do; slot 0 has a receive queue.

    Slot 1 has the side's shared one, slot 2 is UC.
    """

    def __init__(self, side: Side, slot: int) -> None:
        self.side = side
        self.slot = slot
        self.reliable, self.shared = slot != 2, slot == 1
        self.qpn, self.peer_qpn = side.qpn(slot), side.peer.qpn(slot)
        self.pd = PD
        self.state = State.INIT
        self.remote_read = self.remote_write = self.remote_atomic = False
        self.rnr_timer = self.timeout = self.retry_count = self.rnr_retry = 0
        self.read_limit, self.mtu, self.longest = 1, 1024, 1 << 30
        self.drain_event = False
        self.receives: deque[Receive] = side.shared if self.shared else deque()
        self.completions: list[Completion] = []

    @abstractmethod
    def respond(self, request: Request) -> Answer | None:
        """Carry out a request of the peer; None when nothing is said."""

    @abstractmethod
    def forget(self) -> None:
        """The queue pair is gone; nobody is told."""

    @abstractmethod
    def fail_sends(self) -> None:
        """A work request of the send queue failed: all fails, of UC only that queue (10.3.1)."""

    @abstractmethod
    def enter_error(self, event: EventType | None = None) -> None:
        """ERR: everything is flushed."""

    def event(self, event: EventType) -> None:
        self.side.events.append((event, self.qpn))

    def tell(self, completion: Completion) -> None:
        self.completions.append(completion)

    # -- memory ---------------------------------------------------------------------------------

    def gather(self, sges: Sequence[Sge]) -> bytes:
        """The bytes a send or write carries; raises `Fault`."""
        resolve = self.side.protection.resolve
        spans = [
            span for sge in sges for span in resolve(sge, Rights.LOCAL_READ, self.pd, self.qpn)
        ]
        return self.side.memory.read(spans)

    def scatter(self, sges: Sequence[Sge], length: int) -> list[Span]:
        """Where the first `length` bytes go; raises `Fault`."""
        spans: list[Span] = []
        for key, va, size in sges:
            size = min(size, length)
            length -= size
            sge = (key, va, size)
            spans += self.side.protection.resolve(sge, Rights.LOCAL_WRITE, self.pd, self.qpn)
        self.side.memory.check(spans)
        return spans


class Side:
    """One guest with its HCA. `alive`: a driver runs; `up`: its port's link is."""

    peer: Side

    def __init__(self, world: World, name: str, base: int) -> None:
        self.world = world
        self.name = name
        self._base = base
        self.memory = Memory()
        self.start()

    def start(self) -> None:
        """As after power-on, with the driver loaded; memory stays."""
        self.alive = self.up = True
        self.protection = Protection()
        self.pairs: dict[int, QueuePair] = {}
        self.shared: deque[Receive] = deque()
        self.shared_posted = 0
        self.events: list[tuple[EventType, int]] = []

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""
        return self._base + slot

    def close(self, slot: int) -> None:
        """2RST: no trace, and no completion of what was posted."""
        pair = self.pairs.pop(slot, None)
        if pair is not None:
            pair.forget()
            self.protection.leave(pair.qpn)

    def die(self) -> None:
        """The guest is gone: of its HCA nothing is left."""
        for slot in list(self.pairs):
            self.close(slot)
        self.start()
        self.alive = self.up = False

    def post_shared(self, sges: Sequence[Sge]) -> None:
        """A receive in the shared queue; its number is the entry's place."""
        self.shared.append(Receive(self.shared_posted % ENTRIES, sges))
        self.shared_posted += 1


class World:
    """Both sides; `now` in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._number = 0
        self._calls: list[tuple[float, str, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self.answers_to_lose = 0
        self.a, self.b = Side(self, "a", 0x800240), Side(self, "b", 0x250)
        self.a.peer, self.b.peer = self.b, self.a
        self.sides = (self.a, self.b)

    def later(self, side: str, seconds: float, action: Callable[[], None]) -> int:
        """Call `action` in some seconds; a number to cancel it by."""
        self._number += 1
        heapq.heappush(self._calls, (self.now + seconds, side, self._number, action))
        return self._number

    def loses_answer(self) -> bool:
        """Whether an answer that is sent now gets lost on the way."""
        lost = self.answers_to_lose > 0
        self.answers_to_lose -= lost
        return lost

    def cancel(self, number: int) -> None:
        self._cancelled.add(number)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, number, action = heapq.heappop(self._calls)
            self.now = due
            if number not in self._cancelled:
                action()
        self.now = end
