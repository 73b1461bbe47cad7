"""Rounds: traffic, a random moment, a random process is killed, and what must follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Final

from tests.killed.lab import Broken, Lab
from tests.killed.victims import VICTIMS, Told

LONGEST_SECONDS: Final = 2.0
"""Of traffic, before something is killed."""


@dataclass
class Result:
    """What the rounds with one victim showed."""

    times: int = 0
    failures: list[str] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    gone: list[float] = field(default_factory=list)

    def add(self, found: Told) -> None:
        """A round that ended as it must."""
        if found.told is not None:
            self.told.append(found.told)
        if found.gone is not None:
            self.gone.append(found.gone)


class Rounds:
    """Draws by `seed`; `say` gets a line for each round."""

    def __init__(self, seed: int, say: Callable[[str], None]) -> None:
        self._chance = Random(seed)
        self._say = say
        self.results = {victim: Result() for victim in VICTIMS}

    def run(self, times: int) -> None:
        """So many rounds, in one lab after the other."""
        lab = Lab()
        try:
            for number in range(1, times + 1):
                victim, moment = self._draw()
                began = time.monotonic()
                said = self._round(lab, victim, moment)
                took = time.monotonic() - began
                self._say(f"{number}: {victim} after {moment:.2f} s: {said} ({took:.0f} s)")
            lab.up()  # the last victim did no harm, either
        finally:
            lab.close()

    def _draw(self) -> tuple[str, float]:
        return self._chance.choice(list(VICTIMS)), self._chance.uniform(0, LONGEST_SECONDS)

    def _round(self, lab: Lab, victim: str, moment: float) -> str:
        result = self.results[victim]
        result.times += 1
        try:
            lab.up()
            lab.start_traffic()
            time.sleep(moment)
            result.add(VICTIMS[victim](lab, lab.kill(victim)))
        except (Broken, AssertionError, OSError) as error:
            result.failures.append(str(error))
            lab.abandon()
            return f"FAILED: {error}"
        lab.end_traffic()
        return "as it must be"

    @property
    def failed(self) -> int:
        """Rounds that did not end as they must."""
        return sum(len(result.failures) for result in self.results.values())

    def table(self) -> list[str]:
        """A row for each victim; seconds are medians and the longest."""
        rows = ["| killed | times | failed | the others knew after | nothing was left after |"]
        rows.append("|---|---|---|---|---|")
        for victim, result in self.results.items():
            words = (victim, result.times, len(result.failures))
            times = (_seconds(result.told), _seconds(result.gone))
            rows.append("| " + " | ".join(map(str, (*words, *times))) + " |")
        return rows


def _seconds(found: list[float]) -> str:
    return f"{median(found):.1f} s, {max(found):.1f} s" if found else "-"
