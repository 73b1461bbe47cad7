"""Tests under other kernels: which ones, how each did, and what a checked kernel reported."""

from __future__ import annotations

import contextlib

import pytest

from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab import software
from bluebridge.host_tools.lab.pair import Pair

PROPERTY = "bluebridge_kernel"
_OUTCOMES = ("passed", "failed", "error", "skipped")
_REPORTS = "BUG: K[A-Z]*SAN|WARNING: possible|WARNING: inconsistent|suspicious RCU|ODEBUG:"
"""The first words of reports of KASAN, lockdep and DEBUG_OBJECTS, for `grep -E`.

Lockdep's are warnings, which the console of a guest does not show.
"""
_REPORT_LINES = 60
_SECONDS = 30.0


def configure(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` for a kernel that is not there."""
    for name in config.getoption("--bluebridge-kernel").split(","):
        try:
            software.checked(name)
        except UsageError as error:
            raise pytest.UsageError(f"--bluebridge-kernel: {error}") from None


def summarise(reporter: pytest.TerminalReporter) -> None:
    """Print how many tests passed and failed under each kernel."""
    names = reporter.config.getoption("--bluebridge-kernel").split(",")
    reporter.section("bluebridge: kernels")
    for name in names:
        counts = {
            outcome: sum(_ran_under(report, name) for report in reporter.stats.get(outcome, ()))
            for outcome in _OUTCOMES
        }
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        reporter.write_line(f"{name}: {told or 'no test'}")


def _ran_under(report: object, name: str) -> bool:
    return (PROPERTY, name) in getattr(report, "user_properties", ())


def reported(pair: Pair) -> LabError | None:
    """Return what kernels of this pair found wrong with themselves, if they check themselves.

    Debian's kernels do not, so their guests are not asked.
    """
    if software.debian_kernel(pair.config.software.chosen().kernel) is not None:
        return None
    for machine in pair.machines:
        with contextlib.suppress(LabError):
            line = f"dmesg | grep -E -m 1 -A {_REPORT_LINES} '{_REPORTS}'"
            text = machine.run(line, timeout=_SECONDS, check=False).text
            if text.strip():
                first = text.splitlines()[0].partition("] ")[2] or text.splitlines()[0]
                error = LabError(f"guest {machine.name}: {first.strip()}", "see dmesg", text)
                error.aloud = True
                return error
    return None
