"""The measurements, all made with krping's own tests on a booted pair."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bluebridge.host_tools.campaigns.bench.figures import GIB
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.krping.krping_command import KrpingRequest, Outcome, run
from bluebridge.host_tools.lab.pair import Pair

_ADDRESS = "addr=192.168.69.127,port=9999"
_DELTA = re.compile(r"delta sec (\d+) delta usec (\d+) iter (\d+) size (\d+)")


def krping(pair: Pair, options: str) -> Outcome:
    """One krping run with the same options on both sides; raises `LabError` if it failed."""
    outcome = run(
        pair,
        KrpingRequest.parse(f"server,{_ADDRESS},{options}", f"client,{_ADDRESS},{options}"),
        timeout=3600,
    )
    if not outcome.ok:
        raise LabError(f"krping with {options} failed: {outcome.failure()}")
    return outcome


def _p50(outcome: Outcome) -> float:
    """Median microseconds per iteration."""
    return float(outcome.client.result["us_per_iteration"]["p50"])


def krping_median_ms(pair: Pair) -> float:
    """Median milliseconds of a whole krping iteration with 64 bytes."""
    return _p50(krping(pair, "size=64,count=500")) / 1000


def write_bandwidth_gib(pair: Pair) -> float:
    """GiB/s of 1 MiB RDMA WRITEs with a few under link, by the client's clock."""
    outcome = krping(pair, "bw,size=1048576,count=1000,tx-depth=16")
    match = _DELTA.search(outcome.client.output)
    if match is None:
        raise LabError("krping bw printed no result", transcript=outcome.client.output)
    seconds, micro, count, size = map(int, match.groups())
    return count * size / (seconds + micro / 1e6) / GIB


@dataclass(frozen=True)
class PingPong:
    """The measured times of a ping-pong of RDMA WRITEs."""

    half_us: float
    """Median of half a round trip."""
    doorbell_us: float
    """Server CPU per doorbell; each carries one WQE and gives one completion entry."""


def ping_pong(pair: Pair, short: int = 200, long: int = 2200) -> PingPong:
    """8-byte RDMA WRITEs to and fro.

    The difference of a long and a short run takes out what connecting costs the server.
    """
    before = pair.server.cpu_seconds()
    krping(pair, f"wlat,size=8,count={short}")
    middle = pair.server.cpu_seconds()
    outcome = krping(pair, f"wlat,size=8,count={long}")
    spent = (pair.server.cpu_seconds() - middle) - (middle - before)
    return PingPong(_p50(outcome) / 2, spent * 1e6 / (2 * (long - short)))
