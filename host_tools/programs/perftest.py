"""Runs perftest between the guests, and reads the columns of its tables.

Each program samples the processor's clock first. On a host that does too much else the samples do
not agree: of bandwidth it then prints no figures, of latency infinite ones (perftest
src/get_clock.c: sample_get_cpu_mhz).
"""

from __future__ import annotations

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import readiness
from bluebridge.host_tools.programs.readiness import VERBS_PORT

BEST, WORST, TYPICAL = 2, 3, 4
"""Columns of an `ib_*_lat`: t_min, t_max, t_typical, all in microseconds."""
AVERAGE = 3
"""The column of an `ib_*_bw` table with BW average, in MiB/s."""
UNEVEN_CLOCK = r"Can't produce a report|Correlation coefficient r\^2"
"""A regular expression of the output of a program that could not sample the clock."""


def run(pair: Pair, words: str, server: str, seconds: float) -> str:
    """Run `words` in both guests, the client in b with `server`, guest a's address.

    Returns the client's output. Raises `LabError` when either program fails.
    """
    return readiness.serve_and_run(pair, words, f"{words} {server}", VERBS_PORT, seconds)


def last_row(said: str) -> list[str]:
    """Return the cells of the last line of figures in a client's output; empty if there is none."""
    rows = [line.split() for line in said.splitlines() if line.strip()[:1].isdecimal()]
    return rows[-1] if rows else []
