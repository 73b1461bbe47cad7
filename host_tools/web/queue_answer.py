"""A queue pair at a moment and at the end of the log, as the page gets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.queues.queues import Pair, Queue, Queues
from bluebridge.host_tools.analyzer.queues.rings import Ring, RingName, Rings
from bluebridge.host_tools.analyzer.transaction import Role
from bluebridge.host_tools.web.moments import Moments

MOST_NAMED = 200
"""The most queue pairs that the page offers to choose from."""


def answer(moments: Moments, number: int, wanted: Queue | None) -> dict[str, Any]:
    """Return a queue pair after event `number`, and as far as the log was read.

    Without one that is wanted it is the first one that the log has.
    """
    then, last, end, done = moments.at(number)
    found: dict[str, Any] = {"read": end, "end": max(end, moments.end()), "done": done}
    known = sorted(last.pairs)
    found["pairs"] = known[:MOST_NAMED]
    queue = wanted or next(iter(known), None)
    if queue is None:
        return found
    states = adapter_of(queue[0]).states
    edges = [(one, each.target) for each in states.transitions.values() for one in each.sources]
    found |= {
        "pair": queue,
        "states": states.names,
        "edges": sorted({each for each in (*edges, *states.failures) if each[0] != each[1]}),
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


_UNKNOWN = Pair()
