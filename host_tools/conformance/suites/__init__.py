"""The programs of the conformance run, suite by suite."""

from __future__ import annotations

from bluebridge.host_tools.conformance.program import Program
from bluebridge.host_tools.conformance.setups import BRIDGES, SETUPS, Setup
from bluebridge.host_tools.conformance.suites import (
    connections,
    devices,
    network,
    ntb,
    perftest,
    pingpong,
    qperf,
    rdma_core,
    storage,
)

_SUITES = (devices, network, pingpong, connections, perftest, qperf, rdma_core, storage, ntb)


def everything() -> list[tuple[Setup, Program]]:
    """Every program under every setup it belongs to, setup by setup."""
    programs = [program for suite in _SUITES for program in suite.programs()]
    setups = (*SETUPS, *BRIDGES.values())
    return [(setup, found) for setup in setups for found in programs if setup in found.setups]
