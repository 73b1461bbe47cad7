"""`bluebridge ntrdma survive`: guest a lives on; what runs in guest b ends in every state."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair

KILLED, RELOADED, REBOOTED = "killed", "reloaded", "rebooted"
CASES = [(state, how) for how in (KILLED, RELOADED, REBOOTED) for state in PortState]
WARM_UP = 2
"""Visits before anything is counted."""
GROWTH = 2 << 20
"""Bytes by which a process may grow: caches of its interpreter."""
_SAID = "/tmp/survival"
_SECONDS = 120.0
_PROGRAM = "python3 -m bluebridge.guest.ntrdma.survival"
_UNTIL_STOPPED = (
    "& p=$!; until grep -q '^State:.T' /proc/$p/status; do kill -0 $p || exit 9; sleep 0.1; done"
)
_ERRATUM = "erratum "


@dataclass(frozen=True)
class Stock:
    """What must not pile up: in the side that stays, and in the device server."""

    files: int
    threads: int
    bytes: int
    server_bytes: int

    def grown(self, before: Stock) -> str:
        """What has grown since; empty when nothing has."""
        found = []
        for name in ("files", "threads"):
            if getattr(self, name) > getattr(before, name):
                found.append(f"{name}: {getattr(before, name)}, then {getattr(self, name)}")
        for name in ("bytes", "server_bytes"):
            if getattr(self, name) > getattr(before, name) + GROWTH:
                found.append(f"{name}: {getattr(before, name)}, then {getattr(self, name)}")
        return "; ".join(found)


class Survival:
    """Ends guest b's side of NTRDMA again and again; `counts` says how often in which way."""

    def __init__(self, pair: Pair, back_end: str, say: Callable[[str], None]) -> None:
        self._pair, self._say = pair, say
        self._words = f"--backend {back_end}"
        self._visits = 0
        self.counts: Counter[tuple[PortState, str]] = Counter()

    def run(self, times: int) -> None:
        """So many ends, each followed by a visit whose data are right. Raises `LabError`."""
        line = f"({_PROGRAM} stay {self._words}; echo ended with $?) > {_SAID} 2>&1 < /dev/null &"
        self._pair.a.run(["sh", "-c", line])
        for _ in range(WARM_UP):
            self._visit()
        before, begun = self._stock(), time.monotonic()
        for number, (state, how) in enumerate(itertools.islice(itertools.cycle(CASES), times)):
            self._end(state, how)
            self._visit()
            self.counts[state, how] += 1
            what = f"{number + 1}: {how} at state {int(state)} ({state.name.lower()})"
            self._say(f"{what}, and found again; {time.monotonic() - begun:.0f} s")
        after = self._stock()
        if grown := after.grown(before):
            raise LabError(f"after {times} ends there is more than before: {grown}")
        self._say(f"before {before}")
        self._say(f"after  {after}")

    def _visit(self) -> None:
        """A life of guest b's side that ends by itself."""
        self._pair.b.run(f"{_PROGRAM} visit {self._words}", timeout=_SECONDS)
        self._visits += 1

    def _end(self, state: PortState, how: str) -> None:
        visit = f"{_PROGRAM} visit {self._words} --at {int(state)}"
        if how == RELOADED:
            self._pair.b.run(f"{visit} --then close", timeout=_SECONDS)
            return
        waits = f"{visit} --then stop {_UNTIL_STOPPED}"
        if how == KILLED:
            self._pair.b.run(f"{waits}; kill -9 $p; wait $p; true", timeout=_SECONDS)
            return
        self._pair.b.run(f"({waits}) > /dev/null 2>&1 < /dev/null", timeout=_SECONDS)
        self._pair.restart("b")

    def _stock(self) -> Stock:
        """When the side that stays has seen all visits end."""
        deadline = time.monotonic() + _SECONDS
        while True:
            lines = self._pair.a.run(f"cat {_SAID}").text.splitlines()
            said = [json.loads(line) for line in lines if line.startswith("{")]
            if said and said[-1]["orderly"] >= self._visits:
                break
            if time.monotonic() > deadline:
                raise LabError(f"the side that stays has lost count: {lines[-3:]}")
            time.sleep(0.2)
        last = said[-1]
        mine = self._pair.server.resident_bytes()
        return Stock(last["files"], last["threads"], last["kilobytes"] << 10, mine)


def errata(logs: Path) -> list[str]:
    """Accesses that would have hung the first generation, as the log tells of them."""
    return [event.text for event in LogReader(logs) if event.text.startswith(_ERRATUM)]
