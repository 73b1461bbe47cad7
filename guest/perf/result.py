"""The result of a test, as programs read it and in the forms of qperf and perftest."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

_LATENCY_TITLE = (
    "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] "
    "99%[usec] 99.9%[usec]"
)
_BANDWIDTH_TITLE = "#bytes #iterations BW_peak[MB/sec] BW_average[MB/sec] MsgRate[Mpps]"


@dataclass(frozen=True, slots=True)
class Result:
    """A test's result: `seconds` for all messages, for latencies each one's `times` in us."""

    test: str
    count: int
    size: int
    seconds: float
    times: list[float]
    """In ascending order."""

    @property
    def title(self) -> str:
        """The title of perftest's table."""
        return _LATENCY_TITLE if self.times else _BANDWIDTH_TITLE

    def figures(self) -> dict[str, float]:
        """Return the figures for programs: bytes a second, or median and least latency."""
        if not self.times:
            return {"bytes_per_second": self.count * self.size / self.seconds}
        return {"p50_us": self._part(0.5), "min_us": self.times[0]}

    def qperf(self) -> str:
        """Return the lines that qperf prints."""
        if self.times:
            return f"{self.test}:\n    latency  =  {self._part(0.5):.3g} us"
        rate = self.count * self.size / self.seconds / 1e6
        return f"{self.test}:\n    bw  =  {rate:.3g} MB/sec"

    def perftest(self) -> str:
        """Return the row of perftest's table; a peak is 0, since it is not sampled."""
        begin = f"{self.size} {self.count} "
        if not self.times:
            average = self.count * self.size / self.seconds / (1 << 20)
            return begin + f"0.00 {average:.2f} {self.count / self.seconds / 1e6:.6f}"
        spread = statistics.fmean(self.times), statistics.pstdev(self.times)
        parts = self.times[0], self.times[-1], self._part(0.5), *spread
        return begin + " ".join(f"{us:.2f}" for us in (*parts, self._part(0.99), self._part(0.999)))

    def _part(self, share: float) -> float:
        return self.times[min(int(len(self.times) * share), len(self.times) - 1)]
