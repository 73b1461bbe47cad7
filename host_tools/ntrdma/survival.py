"""`bluebridge ntrdma survive`: ends the program in guest b in every state; guest a goes on."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair

KILLED, RELOADED, REBOOTED = "killed", "reloaded", "rebooted"
WORDS = {KILLED: "stop", RELOADED: "close", REBOOTED: "hold"}
GROWTH = 2 << 20
"""The bytes by which a process may grow, for the caches of its interpreter."""
_SAID = "/tmp/survival"
_SECONDS = 300.0
_PROGRAM = "python3 -m bluebridge.guest.protocols.ntrdma.survival"


@dataclass(frozen=True)
class Stock:
    """Counts of resources that must not pile up, in guest a's program and the device server."""

    files: int
    threads: int
    bytes: int
    server_bytes: int

    def grown(self, before: Stock) -> str:
        """Return the resources that have grown since `before` as text; empty when none has."""
        room = {"files": 0, "threads": 0, "bytes": GROWTH, "server_bytes": GROWTH}
        found = []
        for name, most in room.items():
            old, new = getattr(before, name), getattr(self, name)
            if new > old + most:
                found.append(f"{name}: {old}, then {new}")
        return "; ".join(found)


def plan(times: int) -> Iterator[list[tuple[PortState, str]]]:
    """Yield rounds of ends as (state, way), `times` ends in all.

    A full round has two ends in every state, by a kill and by a reload, and one by a reboot.
    """
    states, last = len(PortState), 0
    while times:
        ends = [(state, how) for how in (KILLED, RELOADED) for state in PortState]
        ends = [*ends, (PortState(last % states), REBOOTED)][-times:]
        yield ends
        times, last = times - len(ends), last + 1


class Survival:
    """Ends guest b's side of NTRDMA again and again; `counts` says how often in which way."""

    def __init__(self, pair: Pair, back_end: str, say: Callable[[str], None]) -> None:
        self._pair, self._say = pair, say
        self._words = f"--backend {back_end}"
        self.counts: Counter[tuple[PortState, str]] = Counter()

    def run(self, times: int) -> None:
        """End guest b's side `times` times, each followed by a visit with right data.

        Raises `LabError`.
        """
        line = f"({_PROGRAM} stay {self._words}; echo ended with $?) > {_SAID} 2>&1 < /dev/null &"
        self._pair.a.run(["sh", "-c", line])
        self._lives([])
        before, done = self._stock(), 0
        for ends in plan(times):
            self._lives(ends)
            if ends[-1][1] == REBOOTED:
                self._pair.restart("b")
            done += len(ends)
            self._say(f"{done} ends of {times}")
        self._lives([])
        after = self._stock()
        if grown := after.grown(before):
            raise LabError(f"after {times} ends there is more than before: {grown}")
        self._say(f"before {before}")
        self._say(f"after  {after}")

    def _lives(self, ends: list[tuple[PortState, str]]) -> None:
        """Lives of guest b's side, each of which finds its peer; data are right behind each end."""
        words = [f"{int(state)}:{WORDS[how]}" for state, how in ends]
        line = f"{_PROGRAM} lives {self._words} --ends {' '.join(words)}"
        said = self._pair.b.run(f"{line} < /dev/null 2>&1", timeout=_SECONDS).text
        ended = [each for each in said.splitlines() if each in words]
        if ended != words:
            raise LabError(f"wanted were {words}, there came {said}")
        self.counts.update(ends)

    def _stock(self) -> Stock:
        """Return the stock of both once the side that stays has nothing more to say."""
        deadline, before, lines = time.monotonic() + _SECONDS, "", [""]
        while not before or lines[-1] != before:
            if time.monotonic() > deadline:
                raise LabError(f"the side that stays does not come to rest: {lines[-3:]}")
            before = lines[-1]
            time.sleep(1.0)
            lines = ["", *self._pair.a.run(f"grep '^{{' {_SAID}; true").text.splitlines()]
        last = json.loads(lines[-1])
        mine = self._pair.server.resident_bytes()
        return Stock(last["files"], last["threads"], last["kilobytes"] << 10, mine)
