"""The model's world: two sides, a cable between them, and a clock."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.verbs_model.pair import ENTRIES, PairModel
from tests.models.verbs_model.protection import Memory, Protection
from tests.models.verbs_model.values import Receive, Sge


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
        self.pairs: dict[int, PairModel] = {}
        self.shared: deque[Receive] = deque()
        self.shared_posted = 0
        self.events: list[tuple[EventType, int]] = []

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""
        return self._base + slot

    def open(self, slot: int) -> PairModel:
        """RST2INIT."""
        self.pairs[slot] = PairModel(self, slot)
        return self.pairs[slot]

    def close(self, slot: int) -> None:
        """2RST: no trace, and no completion of what was posted."""
        pair = self.pairs.pop(slot, None)
        if pair is not None:
            pair.requester.forget()
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
