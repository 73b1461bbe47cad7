"""The choice of a path for each of a session's requests, repeated when that path breaks.

As in the kernel's rtrs-clt.c: rtrs_clt_request, fail_all_outstanding_reqs.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bluebridge.guest.protocols.rtrs.engine.actions import Finished
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.client.policies import (
    MIN_INFLIGHT,
    POLICIES,
    ROUND_ROBIN,
    RoundRobin,
    least,
)
from bluebridge.guest.protocols.rtrs.engine.client.requests import NOWHERE, ClientRequest
from bluebridge.guest.protocols.rtrs.engine.client.shared import Shared
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Traffic


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
