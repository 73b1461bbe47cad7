"""perftest and iperf3 between the two guests, over either link, and the figure each prints."""

from __future__ import annotations

import math

from bluebridge.host_tools.campaigns.bench.links import GuestLink
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import perftest as perftest_programs
from bluebridge.host_tools.programs.perftest import AVERAGE, TYPICAL, tcp_rate

_SECONDS = 120.0
_ATTEMPTS = 3


def perftest(pair: Pair, link: GuestLink, command: str) -> float:
    """Return the figure that `command`, an `ib_*_lat` or `ib_*_bw`, prints: microseconds or MiB/s.

    Once more if it could not sample the processor's clock: then its figures are infinite or 0.
    """
    for _ in range(_ATTEMPTS):
        value = _perftest(pair, link, command)
        if 0 < value < math.inf:
            return value
    raise LabError(f"{command} over {link.name} found no clock in {_ATTEMPTS} attempts")


def _perftest(pair: Pair, link: GuestLink, command: str) -> float:
    said = perftest_programs.run(pair, f"{command} -d {link.rdma}", link.server, _SECONDS)
    row = perftest_programs.last_row(said)
    if not row:
        raise LabError(f"{command} over {link.name} printed no figures", transcript=said)
    return float(row[TYPICAL if "_lat" in command else AVERAGE])


def iperf3(pair: Pair, link: GuestLink, *, backwards: bool, seconds: int) -> float:
    """MiB/s of TCP that arrive, from guest b to guest a, or `backwards`."""
    return tcp_rate(pair, link.server, backwards=backwards, seconds=seconds)


def set_mtu(pair: Pair, link: GuestLink, mtu: int) -> None:
    """Set the MTU in both guests; ends when the link is there again."""
    carrier = f"/sys/class/net/{link.netdev}/carrier"
    for machine in pair.machines:
        machine.run(f"ip link set {link.netdev} mtu {mtu}; until grep -q 1 {carrier}; do :; done")
    pair.b.run(f"until ping -c 1 -W 1 {link.server}; do :; done")


def offloads(pair: Pair, link: GuestLink) -> str:
    """Which of the usual offloads the way's network device has on."""
    on = {
        line.strip().partition(":")[0]
        for line in pair.b.run(f"ethtool -k {link.netdev}").text.splitlines()
        if line.partition(":")[2].split()[:1] == ["on"]
    }
    return ", ".join(short for long, short in _OFFLOADS.items() if long in on) or "none"


_OFFLOADS = {
    "tx-checksumming": "checksums out",
    "rx-checksumming": "checksums in",
    "tcp-segmentation-offload": "TSO",
    "generic-receive-offload": "GRO",
    "receive-hashing": "RSS",
}
