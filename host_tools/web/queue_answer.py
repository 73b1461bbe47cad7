"""A queue pair at a moment and at the end of the log, as the page gets it."""

from __future__ import annotations

from typing import Any

from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.queues.queues import Pair, Queue, Queues
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
        "now": _moment(last, queue),
    }
    return found if then is None else found | {"then": _moment(then, queue)}


def _moment(queues: Queues, queue: Queue) -> dict[str, Any]:
    pair = queues.pairs.get(queue, _UNKNOWN)
    return {"state": pair.state, "event": pair.event, "taken": pair.taken}


_UNKNOWN = Pair()
