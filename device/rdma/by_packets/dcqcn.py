"""The rate of a sender whose packets met congestion: DCQCN (Zhu et al., SIGCOMM 2015).

A report of congestion cuts the rate. Without further reports it recovers: first halfway to the rate
before the cut, step by step, then beyond it by a constant, then faster. A step is over after a time
and after so many bytes. There is no clock inside: the owner tells when a period is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SCALE: Final = 100
"""Factor by which the lab is slower than hardware: rates are divided by it, times multiplied."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one sender and its receivers; rates in Mb/s, periods in microseconds.

    The defaults are those of a ConnectX-3 Pro with a link of 40 Gb/s, as its vendor lists them.
    """

    line_rate: float = 40_000.0
    floor: float = 1.0
    first_alpha: float = 512 / 1024
    """Estimate of congestion at the first report."""
    weight: float = 16 / 1024
    """Weight of one report, or of a period without any, in that estimate."""
    alpha_period: float = 40.0
    step_period: float = 2000.0
    step_bytes: int = 500_000
    recovery_steps: int = 5
    """Steps by time or bytes before the rate may grow beyond the last target."""
    increase: float = 5.0
    fast_increase: float = 50.0
    report_interval: float = 40.0
    """Least time between two reports that a receiver sends for one queue pair."""

    def scaled(self, factor: float) -> Parameters:
        """Return them for a slower lab.

        The floor stays: acknowledge timers are not scaled, and must outlast a packet.
        """
        return replace(
            self,
            line_rate=self.line_rate / factor,
            increase=self.increase / factor,
            fast_increase=self.fast_increase / factor,
            alpha_period=self.alpha_period * factor,
            step_period=self.step_period * factor,
            report_interval=self.report_interval * factor,
        )


LAB: Final = Parameters().scaled(SCALE)
"""The parameters of the lab's queue pairs."""
_LEAST_ALPHA: Final = 1 / 1024
"""Resolution of alpha in the adapter; what is less is nothing."""


class RateControl:
    """The `rate` of one sender in Mb/s, the `target` it recovers to, and its estimate `alpha`.

    It is `limited` from the first report until it has recovered.
    """

    __slots__ = (
        "_by_bytes",
        "_by_time",
        "_bytes",
        "_parameters",
        "alpha",
        "limited",
        "rate",
        "target",
    )  # fmt: skip

    def __init__(self, parameters: Parameters = LAB) -> None:
        self._parameters = parameters
        self.rate = self.target = parameters.line_rate
        self.alpha = 0.0
        self.limited = False
        self._bytes = self._by_bytes = self._by_time = 0

    def reported(self) -> None:
        """Cut the rate: a receiver reports congestion."""
        own = self._parameters
        if not self.limited:
            self.limited = True
            self.alpha = own.first_alpha
        self.target = self.rate
        self.rate = max(self.rate * (1 - self.alpha / 2), own.floor)
        self.alpha = (1 - own.weight) * self.alpha + own.weight
        self._bytes = self._by_bytes = self._by_time = 0

    def alpha_period_over(self) -> None:
        """Lower the estimate of congestion after a period without a report."""
        self.alpha *= 1 - self._parameters.weight
        if self.alpha < _LEAST_ALPHA:
            self.alpha = 0.0

    def step_period_over(self) -> None:
        """Raise the rate after a period without a report."""
        self._by_time += 1
        self._increase()

    def sent(self, size: int) -> bool:
        """Count bytes that left; returns True if they made a step that raised the rate."""
        self._bytes += size
        if self._bytes < self._parameters.step_bytes:
            return False
        self._bytes -= self._parameters.step_bytes
        self._by_bytes += 1
        self._increase()
        return True

    def _increase(self) -> None:
        own = self._parameters
        beyond = min(self._by_time, self._by_bytes) - own.recovery_steps
        if beyond > 0:
            self.target += beyond * own.fast_increase
        elif max(self._by_time, self._by_bytes) >= own.recovery_steps:
            self.target += own.increase
        self.target = min(self.target, own.line_rate)
        self.rate = (self.rate + self.target) / 2
        if own.line_rate - self.rate < own.increase:
            self.rate = self.target = own.line_rate
            self.limited = False
