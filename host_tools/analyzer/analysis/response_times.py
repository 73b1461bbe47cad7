"""A distribution of response times in bounded memory, for views.

Times are kept in classes 2 % wide, so that memory does not grow with the log; least, mean and
greatest are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_CLASS = math.log(1.02)
P99 = 0.99


@dataclass(slots=True)
class Times:
    """A distribution of microseconds; `classes` counts them by logarithm.

    `worst` is the number of the event with the greatest time.
    """

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = 0.0
    worst: int = 0
    classes: dict[int, int] = field(default_factory=dict)

    def add(self, value: float, number: int) -> None:
        """Count one time in microseconds, with the number of its event."""
        self.count += 1
        self.total += value
        if value < self.least:
            self.least = value
        if value >= self.greatest:
            self.greatest, self.worst = value, number
        place = int(math.log(value) / _CLASS) if value > 0.001 else -1000
        self.classes[place] = self.classes.get(place, 0) + 1

    def quantile(self, share: float) -> float:
        """Return the time that a `share` of all times does not exceed, within 2 %."""
        left = math.ceil(self.count * share)
        for place in sorted(self.classes):
            left -= self.classes[place]
            if left <= 0:
                upper = math.exp((place + 1) * _CLASS)
                return max(self.least, min(upper, self.greatest))
        return self.greatest

    def summary(self) -> tuple[float, float, float, float]:
        """Return least, mean, greatest and 99th percentile; there must be at least one time."""
        return self.least, self.total / self.count, self.greatest, self.quantile(P99)
