"""The stock ib_write_lat between two guests: what became of the study's rdma_lat.

It writes to and fro, each side polling its memory for the other's last byte, and halves the time.
"""

from __future__ import annotations

import math

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import ADDRESSES
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import BEST, TYPICAL, WORST
from bluebridge.host_tools.sweep.request import SweepRequest
from bluebridge.host_tools.sweep.rows import Wall

_SECONDS = 180.0
_ATTEMPTS = 20


class Perftest:
    """Measures payloads with ib_write_lat on a pair whose kernels drive the HCAs."""

    def __init__(self, pair: Pair, request: SweepRequest) -> None:
        self._pair = pair
        self._request = request

    def close(self) -> None:
        """End the programs, so that nothing is left of a run."""

    def measure(self, size: int) -> Wall:
        """Measure one payload, again while the program cannot sample the guest's clock.

        Raises `LabError` when either program fails, prints no figures, or finds no clock.
        """
        for _ in range(_ATTEMPTS):
            wall = figures(self._run(size), size)
            if math.isfinite(wall.worst):
                return wall
        raise LabError(
            f"ib_write_lat could not sample the guest's clock in {_ATTEMPTS} attempts",
            "go on when the host is less busy",
        )

    def _run(self, size: int) -> str:
        """What the client prints."""
        words = f"ib_write_lat -d mlx4_0 -s {size} -n {self._request.iterations}"
        words += f" -I {self._request.inline}"
        return perftest.run(self._pair, words, ADDRESSES[0].partition("/")[0], _SECONDS)


def figures(said: str, size: int) -> Wall:
    """Return the figures in the client's output; raises `LabError` when there are none."""
    row = perftest.last_row(said)
    if row[:1] != [str(size)] or len(row) <= TYPICAL:
        raise LabError(f"ib_write_lat printed no figures for {size} bytes", transcript=said)
    return Wall(float(row[TYPICAL]), float(row[BEST]), float(row[WORST]))
