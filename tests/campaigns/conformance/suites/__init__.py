"""The programs of the conformance run, suite by suite."""

from __future__ import annotations

from tests.campaigns.conformance.program import Program
from tests.campaigns.conformance.session import BRIDGES, NETWORK, QUICK, RXE, SETUPS, Setup
from tests.campaigns.conformance.suites import hca, ntb, selftests, soft_roce, steering, verbs

Choice = tuple[Setup, Program]


def everything() -> list[Choice]:
    """Every program under every setup it belongs to, setup by setup."""
    suites = (hca, verbs, soft_roce, steering, selftests, ntb)
    programs = [found for suite in suites for found in suite.programs()]
    setups = (*SETUPS, *NETWORK, *RXE, *BRIDGES.values())
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


def is_quick(choice: Choice) -> bool:
    """Whether `make test-all` runs it, too."""
    setup, program = choice
    return program.short and setup in QUICK
