"""Faults that may befall whatever passes a link."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Weather:
    """Chances of what happens to one thing that passes; `late`: at most so many seconds."""

    drop: float = 0.05
    duplicate: float = 0.05
    delay: float = 0.1
    corrupt: float = 0.03
    late: float = 1e-3

    def copies(self, source: random.Random) -> Iterator[tuple[float, bool]]:
        """Of each copy that arrives: by how many seconds it is late, and whether it is damaged."""
        chance = source.random
        for _ in range(2 if chance() < self.duplicate else 1):
            if chance() >= self.drop:
                damaged = chance() < self.corrupt
                yield chance() * self.late if chance() < self.delay else 0.0, damaged


CALM = Weather(0, 0, 0, 0)
