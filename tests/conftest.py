"""Side by side, files that took long begin first: no worker ends long after the others.

`.pytest_cache` remembers how long each file took. Without that pytest-xdist begins with the files
of most tests.
"""

from __future__ import annotations

import signal
from collections import defaultdict

import pytest

# What support code asserts is told with its values, as in tests.
pytest.register_assert_rewrite("tests.models")

_KEY = "bluebridge/seconds"
_SIDE_BY_SIDE = "loadfile"


def pytest_configure(config: pytest.Config) -> None:
    """Have the order of `pytest_collection_modifyitems` kept, and times remembered.

    What tests start gets Ctrl-C, also in a run that a shell began in the background and ignores it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = getattr(config, "cache", None)
    if cache is not None and config.getoption("dist", "no") == _SIDE_BY_SIDE:
        if cache.get(_KEY, {}):
            config.option.loadscopereorder = False
        config.pluginmanager.register(_Times(cache))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: the longest file first."""
    cache = getattr(config, "cache", None)
    if cache is not None and hasattr(config, "workerinput"):
        seconds = cache.get(_KEY, {})
        items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0.0))


class _Times:
    """Adds up what the tests of each file take."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call or teardown of a test, in any worker."""
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Files that did not run this time keep the time they had."""
        self._cache.set(_KEY, {**self._cache.get(_KEY, {}), **self._seconds})


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
