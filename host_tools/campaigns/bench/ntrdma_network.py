"""Network interfaces over NTRDMA beside the kernel's ntb_netdev, over the same bridge in turn."""

from __future__ import annotations

from bluebridge.device.layout.ntb.models import DEFAULT
from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.host_tools.campaigns.bench.figures import Figure, plain
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.ntrdma import network
from bluebridge.host_tools.ntrdma.network import Measured, Plan
from bluebridge.host_tools.progress import Progress

ROUNDS = 3


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of the section on networks over the bridge. Raises `LabError`."""
    config = ntrdma.config(LabConfig(bus_log=False), BACK_END)
    with Pair(config, progress) as pair:
        rows = network.compare(pair, Plan(DEFAULT, rounds=ROUNDS), progress)
    return [figure for row in rows for figure in figures_of(row)]


def figures_of(row: Measured) -> list[Figure]:
    """The figures of one way."""
    key = f"{'ntrdma' if row.frames_per_burst else 'netdev'}_net_{row.mtu}"
    title = f"{row.way}, MTU {row.mtu}"
    found = [
        plain(f"{key}_ping", f"ping, {title}, p50", row.ping_us, "us"),
        plain(f"{key}_to_a", f"iperf3, {title}, b to a", row.to_a, "MiB/s"),
        plain(f"{key}_to_b", f"iperf3, {title}, a to b", row.to_b, "MiB/s"),
    ]
    if row.frames_per_burst:
        bursts = f"frames for each interrupt, {title}"
        found.append(plain(f"{key}_burst", bursts, row.frames_per_burst, ""))
    return found
