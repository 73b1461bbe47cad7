"""The policies by which a request takes a path: round-robin, min-inflight, min-latency.

They are round-robin, min-inflight and min-latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

ROUND_ROBIN: Final = "round-robin"
MIN_INFLIGHT: Final = "min-inflight"
MIN_LATENCY: Final = "min-latency"
POLICIES: Final = (ROUND_ROBIN, MIN_INFLIGHT, MIN_LATENCY)


class Choice(Protocol):
    """The attributes of a path that policies look at."""

    number: int

    @property
    def connected(self) -> bool:
        """True when the path can take requests."""

    @property
    def inflight(self) -> int:
        """The number of requests in flight that policies count."""

    @property
    def latency(self) -> float:
        """The round trip of the last heartbeat in seconds."""


class RoundRobin:
    """Takes the path after the last one, connected or not, for each CPU by itself.

    As in the kernel's rtrs-clt.c: get_next_path_rr.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def next(self, paths: Sequence[Choice], cpu: int) -> int:
        """Return the index of the path whose turn it is; `paths` is not empty."""
        last = self._last.get(cpu)
        index = 0
        for place, path in enumerate(paths):
            if path.number == last:
                index = (place + 1) % len(paths)
        self._last[cpu] = paths[index].number
        return index

    def removed(self, paths: Sequence[Choice], number: int) -> None:
        """Forget path `number`, still in `paths`; its successor takes its place as the last one.

        As in the kernel's rtrs-clt.c: rtrs_clt_remove_path_from_arr.
        """
        places = [path.number for path in paths]
        successor = places[(places.index(number) + 1) % len(places)]
        for cpu, last in list(self._last.items()):
            if last == number:
                self._last[cpu] = successor


def least(paths: Sequence[Choice], policy: str, tried: Sequence[int]) -> int | None:
    """Return the index of the untried connected path with the least load or latency.

    Of equals it is the first; None when there is no such path.
    """
    best = None
    best_value = 0.0
    for index, path in enumerate(paths):
        if not path.connected or index in tried:
            continue
        value = float(path.inflight) if policy == MIN_INFLIGHT else path.latency
        if best is None or value < best_value:
            best, best_value = index, value
    return best
