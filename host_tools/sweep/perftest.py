"""The stock ib_write_lat between two guests: what became of the study's rdma_lat.

It writes to and fro, each side polling its memory for the other's last byte, and halves the time.
"""

from __future__ import annotations

import math

from bluebridge.host_tools.conformance.program import listening
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import ADDRESSES, Pair
from bluebridge.host_tools.sweep.request import Request
from bluebridge.host_tools.sweep.rows import Wall

_PORT = 18515
_SECONDS = 180.0
_ATTEMPTS = 20
_BEST, _WORST, _TYPICAL = 2, 3, 4  # columns: t_min, t_max, t_typical, all in us
_LISTENS = f"until {listening(_PORT)}; do sleep 0.05; done"


class Perftest:
    """Measures payloads on a pair that has the kernel's drivers."""

    def __init__(self, pair: Pair, request: Request) -> None:
        self._pair = pair
        self._request = request

    def close(self) -> None:
        """Nothing is left of a run."""

    def measure(self, size: int) -> Wall:
        """One payload. Raises `LabError` when either program fails or prints no figures.

        perftest samples the processor's clock first. On a host that does too much else the samples
        do not agree, and all its figures are infinite (src/get_clock.c: sample_get_cpu_mhz).
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
        server = self._pair.a.agent.start(words, _SECONDS)
        try:
            self._pair.a.run(_LISTENS)
            done = self._pair.b.run(f"{words} {_server()}", timeout=_SECONDS)
        except BaseException:
            server.kill()
            raise
        server.wait()
        return done.text


def _server() -> str:
    return ADDRESSES[0].partition("/")[0]


def figures(said: str, size: int) -> Wall:
    """The figures in what the client prints; raises `LabError` when there are none."""
    for line in reversed(said.splitlines()):
        words = line.split()
        if words[:1] == [str(size)] and len(words) > _TYPICAL:
            return Wall(float(words[_TYPICAL]), float(words[_BEST]), float(words[_WORST]))
    raise LabError(f"ib_write_lat printed no figures for {size} bytes", transcript=said)
