"""`python -m tests.campaigns.survival`: ends NTRDMA in guest b in every state; guest a goes on.

After each end the next program must find its peer and its data must be right; at the end neither
the side that stays nor the device server may have grown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb.models import DEFAULT
from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS
from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.ntrdma.ntrdma_options import MODELS

KILLED, RELOADED, REBOOTED = "killed", "reloaded", "rebooted"
WORDS = {KILLED: "stop", RELOADED: "close", REBOOTED: "hold"}
GROWTH = 2 << 20
"""The bytes by which a process may grow, for the caches of its interpreter."""
_HANGS = (Fact.BRIDGE_HANGS, Fact.BRIDGE_MIGHT_HANG)
_SAID = "/tmp/survival"
_SECONDS = 300.0
_SOURCE, _PLACE = Path(__file__).with_name("in_guest.py"), "/tmp/survival.py"
_PROGRAM = f"python3 {_PLACE}"


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
        self._pair.both(_give)
        self._pair.a.run(["sh", "-c", line])
        self._lives([])
        before, done = self._stock(), 0
        for ends in plan(times):
            self._lives(ends)
            if ends[-1][1] == REBOOTED:
                self._pair.restart("b")
                _give(self._pair.b)
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


def _give(machine: Vm) -> None:
    machine.agent.put(_SOURCE, _PLACE)


def survive(config: LabConfig, back_end: str, times: int, say: Callable[[str], None]) -> None:
    """Run a survival on a pair of its own, and say what came of it. Raises `LabError`."""
    assert config.bridge is not None
    with Pair(config, say) as pair:
        survival = Survival(pair, back_end, say)
        survival.run(times)
        logs = Path(pair.logs) / "bus"
    for how in (KILLED, RELOADED, REBOOTED):
        counts = [survival.counts[state, how] for state in PortState]
        say(f"{how}: {sum(counts)} times, at states 0 to 6: {' '.join(map(str, counts))}")
    if config.bridge.model.errata:
        hangs = sum(each.fact in _HANGS for each in LogReader(logs))
        if hangs:
            raise LabError(f"{hangs} accesses would have hung the hardware")


def main(words: Sequence[str]) -> int:
    """Run what the command line asks for; exit status 1 with a line when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.survival", description=__doc__)
    parser.add_argument("--times", type=int, default=21, help="ends in all (default 21)")
    parser.add_argument("--backend", choices=BRIDGE_BACK_ENDS, default=BACK_END)
    parser.add_argument("--model", choices=MODELS, default=DEFAULT.name)
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    given = parser.parse_args(words)
    try:
        config = ntrdma.config(LabConfig(log=given.log), given.backend, given.model)
        survive(config, given.backend, given.times, Reporter())
    except LabError as error:
        print(f"survival: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
