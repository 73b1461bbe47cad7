"""The programs of the conformance run, suite by suite."""

from __future__ import annotations

from bluebridge.device import cards
from tests.campaigns.conformance.program import Program
from tests.campaigns.conformance.session import (
    BRIDGES,
    CONNECTX5_SETUPS,
    CONNECTX5_USERS,
    NETWORK,
    QUICK,
    RXE,
    SETUPS,
    Setup,
)
from tests.campaigns.conformance.suites import devx, hca, ntb, selftests, soft_roce, steering, verbs

Choice = tuple[Setup, Program]


SETUPS_OF = {
    cards.CONNECTX3.name: (*SETUPS, *NETWORK, *RXE, *BRIDGES.values()),
    cards.CONNECTX5.name: (*CONNECTX5_SETUPS, CONNECTX5_USERS),
}
"""The setups of a run, by the card that it is about; that of a ConnectX-3 has all other devices."""


def everything(card: str = cards.DEFAULT) -> list[Choice]:
    """Every program of a card's run under every setup it belongs to, setup by setup."""
    suites = (hca, verbs, soft_roce, steering, devx, selftests, ntb)
    programs = [found for suite in suites for found in suite.programs()]
    return [
        (setup, found)
        for setup in SETUPS_OF[card]
        for found in programs
        if setup.runs(found.key, found.setups)
    ]


def key(choice: Choice) -> str:
    """Return the name of a program under a setup in a run: the key of its `Entry`."""
    setup, program = choice
    return f"{setup.name}/{program.key}"


def is_quick(choice: Choice) -> bool:
    """Whether `make test-all` runs it, too."""
    setup, program = choice
    return program.short and setup in QUICK
