"""Programs of this machine on both sides, without a guest: krping, and NTRDMA's latencies."""

from __future__ import annotations

from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.host_tools.errors import Progress
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from tests.campaigns.bench.krping import median_ms
from tests.campaigns.bench.ntrdma import latencies
from tests.campaigns.bench.page import Figure

GOALS = {"rc_rdma_write_lat": 60, "rc_lat": 100, "rc_rdma_read_lat": 150}
"""Microseconds that NTRDMA's latencies should not exceed, by the test."""


def figures(progress: Progress) -> list[Figure]:
    """Measure krping and NTRDMA from host to host, the bus log off. Raises `LabError`."""
    base = LabConfig(hosts="ab", bus_log=False)
    with Pair(base, progress) as pair:
        progress("krping, 64 bytes, host to host")
        median = median_ms(pair)
    found = [Figure("krping, 64 bytes, median per iteration, host to host", median, "ms", most=0.3)]
    with Pair(ntrdma.config(base, BACK_END, GEN4.name), progress) as pair:
        progress("NTRDMA's latencies, host to host")
        return [*found, *latencies(pair, GOALS)]
