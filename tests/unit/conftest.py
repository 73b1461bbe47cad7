"""Settings of all unit tests."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES, BRIEF_EXAMPLES = 100, 25

with suppress(ImportError):
    # A log imports it at its first use. Tests that are sessions of pytest forget what was imported
    # first in them, and native code cannot be imported a second time in a process.
    from bluebridge.device.buslog import native_packing as native_packing


def pytest_configure(config: pytest.Config) -> None:
    """Let `make test` judge a change, not the luck of a run: its examples are always the same.

    It has fewer of them; `make test-all` runs such tests again, with examples of its own.
    """
    brief = config.getoption("brief") and not config.getoption("rest")
    settings.register_profile(
        "bluebridge",
        max_examples=BRIEF_EXAMPLES if brief else EXAMPLES,
        # Machines with two cores run virtual machines beside these tests: time says nothing here.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=brief,
    )
    settings.load_profile("bluebridge")
