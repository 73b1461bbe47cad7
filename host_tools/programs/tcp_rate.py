"""iperf3 between the guests: how much TCP arrives."""

from __future__ import annotations

import json
from typing import Any

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import client_server
from bluebridge.host_tools.programs.readiness import IPERF_PORT

_LIMIT = 120.0
MIB = 1 << 20


def tcp_rate(pair: Pair, server: str, *, backwards: bool, seconds: int) -> float:
    """MiB/s from guest b to guest a, which has the address `server`; or `backwards`.

    A first second does not count. Raises `LabError`.
    """
    options = f"-t {seconds} -O 1 --json {'-R' if backwards else ''}"
    client = f"iperf3 -c {server} {options}"
    said = client_server.run(pair, "iperf3 -s -1", client, IPERF_PORT, _LIMIT + seconds)
    report: dict[str, Any] = json.loads(said)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / MIB
