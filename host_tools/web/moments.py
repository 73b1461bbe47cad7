"""The queues of a log at any moment of it, found from copies that are kept of some moments.

The log is passed once, a limited time for each request; the copies grow sparser with its length.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.queues import KINDS, Pair, Queue, Queues, Ring, RingName, Rings
from bluebridge.host_tools.analyzer.transaction import Role

SECONDS = 0.2
"""The time limit of one request; a later one goes on."""
_APART = 4096  # The number of events between two copies, at first
_MOST_KEPT = 1 << 20
"""The most queues in all copies together; beyond that every second copy is dropped."""

MOST_NAMED = 200
"""The most queue pairs that the page offers to choose from."""

_UNKNOWN = Pair()


class Moments:
    """The queues of a log after each of its events; for several threads. Raises `LogError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._kept: list[tuple[int, Queues]] = [(0, Queues())]
        self._apart = _APART
        self._last = Queues()
        self._next = 0
        self._near: tuple[int, Queues] = (0, Queues())

    def at(self, number: int, seconds: float = SECONDS) -> tuple[Queues | None, Queues, int, bool]:
        """Return the queues after event `number`, and those after the last event that was passed.

        The former are None where the log was not passed so far yet. Then come the number of the
        event that is passed next, and whether the log has none left.
        """
        with self._lock:
            done = self._pass(time.monotonic() + seconds)
            then = self._then(number) if done or number < self._next else None
            return then, self._last, self._next, done

    def end(self) -> int:
        """Return about how many events the log has."""
        return about_last(self._folder)

    def _pass(self, deadline: float) -> bool:
        """Go on with the log up to its end or for some time; return whether it was the end."""
        reader, last = LogReader(self._folder), self._last
        for event in reader.events(Filter(first=self._next, kinds=KINDS)):
            last.feed(event)
            self._next = event.number + 1
            if self._next - self._kept[-1][0] >= max(self._apart, len(last)):
                self._kept.append((self._next, last.copy()))
                if sum(len(queues) + 1 for _, queues in self._kept) > _MOST_KEPT:
                    del self._kept[1::2]
                    self._apart *= 2
            if not event.number & 63 and time.monotonic() > deadline:
                return False
        return True

    def _then(self, number: int) -> Queues:
        """Return the queues after an event, from the copy before it or from the moment before."""
        end = min(number + 1, self._next)
        place = bisect_right(self._kept, end, key=lambda each: each[0]) - 1
        first, queues = self._kept[place]
        if first <= self._near[0] <= end:
            first, queues = self._near
        queues = queues.copy()
        for event in LogReader(self._folder).events(Filter(first=first, kinds=KINDS)):
            if event.number >= end:
                break
            queues.feed(event)
        self._near = end, queues
        return queues


def queue_answer(moments: Moments, number: int, wanted: Queue | None) -> dict[str, Any]:
    """Return a queue pair, or the log's first, after event `number` and at the end so far."""
    then, last, end, done = moments.at(number)
    found: dict[str, Any] = {"read": end, "end": max(end, moments.end()), "done": done}
    known = sorted(last.pairs)
    found["pairs"] = known[:MOST_NAMED]
    queue = wanted or next(iter(known), None)
    if queue is None:
        return found
    adapter = adapter_of(last.devices.get(queue[0], queue[0]))
    frames = adapter.frame_states if last.pairs.get(queue, _UNKNOWN).frames else None
    edges = [(one, to) for sources, to in adapter.transitions.values() for one in sources]
    edges = [*edges, *adapter.failures] if frames is None else list(frames.edges)
    found |= {
        "pair": queue,
        "states": adapter.states if frames is None else frames.states,
        "edges": sorted({each for each in edges if each[0] != each[1]}),
        "now": _moment(last, queue, last.rings),
    }
    return found if then is None else found | {"then": _moment(then, queue, last.rings)}


def _moment(queues: Queues, queue: Queue, known: Rings) -> dict[str, Any]:
    """Return state and rings; `known` says which completion queues the queue pair gets."""
    pair = queues.pairs.get(queue, _UNKNOWN)
    rings = [
        {"name": name, "slots": ring.slots, "producer": ring.producer, "consumer": ring.consumer}
        for name, ring_name in _names(known, queue)
        if (ring := queues.rings.known.get(ring_name)) is not None
        and (ring.producer, ring.consumer) != (None, None)
    ]
    return {"state": pair.state, "event": pair.event, "taken": pair.taken, "rings": rings}


def _names(rings: Rings, queue: Queue) -> Iterator[tuple[str, RingName]]:
    """Yield the rings of a queue pair: its own, its completion queues, and their event queues."""
    function, qpn = queue
    yield "send ring", (function, Role.WQE, qpn)
    yield "receive ring", (function, Role.RECEIVE_WQE, qpn)
    cqns = [each for each in rings.completes.get(queue, ()) if each is not None]
    for cqn in dict.fromkeys(cqns):
        yield f"CQ {cqn:#x}", (function, Role.CQE, cqn)
    eqns = (rings.known.get((function, Role.CQE, cqn), Ring()).events for cqn in cqns)
    for eqn in dict.fromkeys(each for each in eqns if each is not None):
        yield f"EQ {eqn}", (function, Role.EQE, eqn)
