"""The programs of the conformance run, suite by suite."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import BRIDGES, QUICK, RXE, SETUPS, Setup
from bluebridge.host_tools.campaigns.conformance.suites import (
    connections,
    devices,
    dpdk,
    firmware,
    network,
    ntb,
    perftest,
    pingpong,
    qperf,
    rdma_core,
    soft_roce,
    steering,
    storage,
)

Choice = tuple[Setup, Program]

_SUITES = (
    devices,
    network,
    pingpong,
    connections,
    perftest,
    qperf,
    rdma_core,
    storage,
    soft_roce,
    steering,
    dpdk,
    ntb,
    firmware,
)


def everything() -> list[Choice]:
    """Every program under every setup it belongs to, setup by setup."""
    programs = [program for suite in _SUITES for program in suite.programs()]
    setups = (*SETUPS, *RXE, *BRIDGES.values())
    return [
        (setup, found)
        for setup in setups
        for found in programs
        if (setup.programs_of or setup) in found.setups
    ]


def key(choice: Choice) -> str:
    """Return the name of a program under a setup in a run: the key of its `Entry`."""
    setup, program = choice
    return f"{setup.name}/{program.key}"


def in_short_run(choice: Choice) -> bool:
    """Whether it is one of the quick programs."""
    setup, program = choice
    return program.short and setup in QUICK
