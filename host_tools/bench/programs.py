"""perftest and iperf3 between the two guests, over either way, and the figure each prints."""

from __future__ import annotations

import json
import math
from typing import Any

from bluebridge.host_tools.bench.links import Way
from bluebridge.host_tools.conformance.program import IPERF_PORT, listening
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair

_SECONDS = 120.0
_ATTEMPTS = 3
_PERFTEST_PORT = 18515
_LATENCY_COLUMN, _BANDWIDTH_COLUMN = 4, 3  # t_typical[usec], BW average[MiB/sec]
MIB = 1 << 20


def perftest(pair: Pair, way: Way, command: str) -> float:
    """What `command`, words of an `ib_*_lat` or `ib_*_bw`, prints: microseconds, or MiB/s.

    Once more if it could not sample the processor's clock: then its figures are infinite or 0.
    """
    for _ in range(_ATTEMPTS):
        value = _perftest(pair, way, command)
        if 0 < value < math.inf:
            return value
    raise LabError(f"{command} over {way.name} found no clock in {_ATTEMPTS} attempts")


def _perftest(pair: Pair, way: Way, command: str) -> float:
    said = _client(pair, way, f"{command} -d {way.rdma}", _PERFTEST_PORT, "")
    rows = [line.split() for line in said.splitlines() if line.strip()[:1].isdecimal()]
    if not rows:
        raise LabError(f"{command} over {way.name} printed no figures", transcript=said)
    return float(rows[-1][_LATENCY_COLUMN if "_lat" in command else _BANDWIDTH_COLUMN])


def iperf3(pair: Pair, way: Way, *, backwards: bool, seconds: int) -> float:
    """MiB/s of TCP that arrive, from guest b to guest a, or `backwards`."""
    options = f"-t {seconds} -O 1 --json {'-R' if backwards else ''}"
    said = _client(pair, way, "iperf3", IPERF_PORT, options)
    report: dict[str, Any] = json.loads(said)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / MIB


def _client(pair: Pair, way: Way, program: str, port: int, options: str) -> str:
    """Start the server in guest a, run the client in guest b; the client's output."""
    iperf = program == "iperf3"
    server = pair.a.agent.start("iperf3 -s -1" if iperf else program, _SECONDS)
    try:
        pair.a.run(f"until {listening(port)}; do sleep 0.05; done")
        address = f"-c {way.server}" if iperf else way.server
        done = pair.b.run(f"{program} {address} {options}", timeout=_SECONDS)
    except BaseException:
        server.kill()
        raise
    server.wait()
    return done.text


def set_mtu(pair: Pair, way: Way, mtu: int) -> None:
    """In both guests; ends when the link is there again."""
    carrier = f"/sys/class/net/{way.netdev}/carrier"
    for machine in pair.machines:
        machine.run(f"ip link set {way.netdev} mtu {mtu}; until grep -q 1 {carrier}; do :; done")
    pair.b.run(f"until ping -c 1 -W 1 {way.server}; do :; done")


def offloads(pair: Pair, way: Way) -> str:
    """Which of the usual offloads the way's network device has on."""
    on = {
        line.strip().partition(":")[0]
        for line in pair.b.run(f"ethtool -k {way.netdev}").text.splitlines()
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
