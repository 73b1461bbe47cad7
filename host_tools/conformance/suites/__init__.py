"""The programs of the conformance run, suite by suite."""

from __future__ import annotations

from host_tools.conformance.program import SETUPS, Program, Setup
from host_tools.conformance.suites import (
    connections,
    devices,
    network,
    perftest,
    pingpong,
    qperf,
    rdma_core,
    storage,
)

_SUITES = (devices, network, pingpong, connections, perftest, qperf, rdma_core, storage)


def everything() -> list[tuple[Setup, Program]]:
    """Every program under every setup it belongs to, setup by setup."""
    programs = [program for suite in _SUITES for program in suite.programs()]
    return [(setup, found) for setup in SETUPS for found in programs if setup in found.setups]
