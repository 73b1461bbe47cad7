"""The choice of a path for each of a session's requests, repeated when that path breaks.

As in the kernel's rtrs-clt.c: rtrs_clt_request, fail_all_outstanding_reqs.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from bluebridge.guest.protocols.rtrs.engine.actions import Finished
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.client.shared import NOWHERE, ClientRequest, Shared
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Traffic

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


class Dispatch:
    """Sends the requests of a session on its `paths`, the session's own list."""

    def __init__(self, shared: Shared, paths: list[Path]) -> None:
        self._shared = shared
        self._paths = paths
        self._turns = RoundRobin()
        self._policy = ROUND_ROBIN
        self.policy = shared.settings.mp_policy
        self._stranded: list[ClientRequest] = []
        """The requests that are in flight but on no path."""

    @property
    def policy(self) -> str:
        """The multipath policy: round-robin, min-inflight or min-latency."""
        return self._policy

    @policy.setter
    def policy(self, policy: str) -> None:
        if policy not in POLICIES:
            raise ValueError(f"{policy!r} is none of {', '.join(POLICIES)}")
        self._policy = policy

    def start(self, request: ClientRequest) -> int:
        """Send a request on a connected path; returns 0, or ECONNABORTED if no path takes it."""
        paths, policy = self._paths, self._policy
        counted = policy == MIN_INFLIGHT
        failed: int = errno.ECONNABORTED
        tried: list[int] = []
        for _turn in range(len(paths)):
            index = self._next(request.cpu, tried)
            if index is None:
                break
            tried.append(index)
            traffic = paths[index].traffic if paths[index].connected else None
            if traffic is None:
                continue
            failed = traffic.start(request, counted)
            if not failed:
                return 0
        return failed

    def path_drained(self, path: Path, traffic: Traffic) -> None:
        """Repeat the requests of a drained path on another path."""
        for request in self._shared.requests:
            if request.path == path.number and traffic.take_back(request):
                request.path = NOWHERE
                self._stranded.append(request)
        self.repeat()

    def repeat(self) -> None:
        """Send the requests that are on no path; finish them with ECONNABORTED if none is to come.

        A path that has sent INFO_REQ is about to come. Requests wait for it: the server lets it
        in as soon as all operations are over that it knew of then. Had one of these been finished
        here, the slot's next request might meet it in the chunk.
        """
        stranded, self._stranded = self._stranded, []
        for request in stranded:
            failed = self.start(request)
            if not failed:
                self._count(request)
            elif any(path.asking for path in self._paths):
                self._stranded.append(request)
            else:
                request.path = 0
                self._shared.outbox.add(Finished(request.slot, failed))

    def path_removed(self, path: Path) -> None:
        """Take a path off the list."""
        self._turns.removed(self._paths, path.number)
        self._paths.remove(path)

    def _count(self, request: ClientRequest) -> None:
        for path in self._paths:
            if path.number == request.path:
                path.statistics.failovers += 1

    def _next(self, cpu: int, tried: Sequence[int]) -> int | None:
        if self._policy == ROUND_ROBIN:
            return self._turns.next(self._paths, cpu)
        return least(self._paths, self._policy, tried)
