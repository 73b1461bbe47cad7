"""NTRDMA through the bridge: its latencies and its bandwidth, beside those of the original."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping

from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.guest.perf.sides import LATENCY_BYTES
from bluebridge.host_tools.errors import Progress
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.ntrdma.ntrdma_command import perf
from tests.campaigns.bench.page import Figure

ROUNDS = 5
COUNT = 500
BANDWIDTH = "rc_rdma_write_bw"
ORIGINAL = {"rc_lat": 12.2, "rc_rdma_write_lat": 12.8, "rc_rdma_read_lat": 21.4}
"""Microseconds that the original reached on real machines, by the test."""

GOALS = {"rc_lat": None, "rc_rdma_write_lat": 400, "rc_rdma_read_lat": None}
"""Microseconds that the latencies should not exceed between guests, where there is a goal."""


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of NTRDMA's section: medians over some rounds. Raises `LabError`."""
    with Pair(ntrdma.config(LabConfig(bus_log=False), BACK_END, GEN4.name), progress) as pair:
        progress("NTRDMA: latencies, bandwidth")
        found = latencies(pair, GOALS)
        rates = [_measured(pair, BANDWIDTH)[BANDWIDTH]["bytes_per_second"] for _ in range(ROUNDS)]
    rate = statistics.median(rates) / 1e6
    return [*found, Figure(f"NTRDMA, {BANDWIDTH}, 1 MiB", rate, "MB/s", least=500)]


def latencies(pair: Pair, goals: Mapping[str, float | None]) -> list[Figure]:
    """Measure the latency tests of `goals`, which says how many microseconds each may take."""
    rounds = [_measured(pair, *goals, "--count", str(COUNT)) for _ in range(ROUNDS)]
    found = []
    for test, goal in goals.items():
        title = f"NTRDMA, {test}, {LATENCY_BYTES} bytes, p50 (the original: {ORIGINAL[test]:g} us)"
        value = statistics.median(each[test]["p50_us"] for each in rounds)
        found.append(Figure(title, value, "us", most=goal))
    return found


def _measured(pair: Pair, *words: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(perf(pair, BACK_END, [*words, "--json"]))
    return found
