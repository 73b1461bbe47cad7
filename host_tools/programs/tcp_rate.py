"""The rate of TCP between the guests, measured by iperf3."""

from __future__ import annotations

import json
from typing import Any

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import client_server
from bluebridge.host_tools.programs.readiness import IPERF_PORT

_LIMIT = 120.0
MIB = 1 << 20


def tcp_rate(pair: Pair, server: str, *, backwards: bool, seconds: int) -> float:
    """Return the rate in MiB/s from guest b to guest a, whose address is `server`.

    With `backwards` it is from a to b. The first second is not counted. Raises `LabError`.
    """
    options = f"-t {seconds} -O 1 --json {'-R' if backwards else ''}"
    client = f"iperf3 -c {server} {options}"
    said = client_server.run(pair, "iperf3 -s -1", client, IPERF_PORT, _LIMIT + seconds)
    report: dict[str, Any] = json.loads(said)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / MIB
