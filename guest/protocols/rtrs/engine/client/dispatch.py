"""The choice of a path for each of a session's requests, repeated when that path breaks.

As in the kernel's rtrs-clt.c: rtrs_clt_request, get_next_path_rr, fail_all_outstanding_reqs.
"""

from __future__ import annotations

import errno
from typing import Final

from bluebridge.guest.protocols.rtrs.engine.actions import Finished
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.client.shared import NOWHERE, ClientRequest, Shared
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Traffic

ROUND_ROBIN: Final = "round-robin"
MIN_INFLIGHT: Final = "min-inflight"
MIN_LATENCY: Final = "min-latency"
POLICIES: Final = (ROUND_ROBIN, MIN_INFLIGHT, MIN_LATENCY)


class Dispatch:
    """Sends the requests of a session on its `paths`, the session's own list."""

    def __init__(self, shared: Shared, paths: list[Path]) -> None:
        self._shared = shared
        self._paths = paths
        self._last: dict[int, int] = {}
        """By CPU, the number of the path whose turn was the last one under round-robin."""
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
        policy = self._policy
        failed: int = errno.ECONNABORTED
        tried: list[Path] = []
        for _turn in range(len(self._paths)):
            path = self._in_turn(request.cpu) if policy == ROUND_ROBIN else self._least(tried)
            if path is None:
                break
            tried.append(path)
            traffic = path.traffic if path.connected else None
            if traffic is None:
                continue
            failed = traffic.start(request, policy == MIN_INFLIGHT)
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
                for path in self._paths:
                    if path.number == request.path:
                        path.statistics.failovers += 1
            elif any(path.asking for path in self._paths):
                self._stranded.append(request)
            else:
                request.path = 0
                self._shared.outbox.append(Finished(request.slot, failed))

    def path_removed(self, path: Path) -> None:
        """Take a path off the list; its successor takes its place as the last one.

        As in the kernel's rtrs-clt.c: rtrs_clt_remove_path_from_arr.
        """
        paths = self._paths
        successor = paths[(paths.index(path) + 1) % len(paths)]
        for cpu, last in list(self._last.items()):
            if last == path.number:
                self._last[cpu] = successor.number
        paths.remove(path)

    def _in_turn(self, cpu: int) -> Path:
        """Return the path after the last one, connected or not, for each CPU by itself."""
        paths = self._paths
        last = self._last.get(cpu)
        index = 0
        for place, path in enumerate(paths):
            if path.number == last:
                index = (place + 1) % len(paths)
        self._last[cpu] = paths[index].number
        return paths[index]

    def _least(self, tried: list[Path]) -> Path | None:
        """Return the first untried connected path with the least load or latency, if any."""
        best = None
        best_value = 0.0
        for path in self._paths:
            if not path.connected or path in tried:
                continue
            if self._policy == MIN_INFLIGHT:
                value = float(path.statistics.inflight)
            else:
                value = path.heartbeat.latency
            if best is None or value < best_value:
                best, best_value = path, value
        return best
