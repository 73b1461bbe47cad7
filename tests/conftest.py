"""Which tests `make test` runs, and in which order.

`--brief` chooses what `make test` runs: without guests all but what is marked `full`, with guests
what is marked `brief`. `--rest` chooses what that leaves out. Neither runs what is marked `long`.
`--first` leaves one set of parameters of each test: the interpreted device server differs from the
compiled one, which has run them all, in whole functions.

Side by side, files that will take long begin first, so that no worker ends long after the others.
`.pytest_cache` remembers how long a test of each file took; one part tells of another, since they
share files. Without that pytest-xdist begins with the files of most tests.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from bluebridge.device import cards

# What support code asserts is told with its values, as in tests.
pytest.register_assert_rewrite("tests.models", "tests.oracle", "tests.world")

TURN_SECONDS = 0.0002
"""The turn of a thread: two sides of a protocol, each of which spins for the other, are often
threads of one process here."""
_KEY = "bluebridge/seconds for each test"
_SIDE_BY_SIDE = "loadfile"
_GUESTS = "tests/vm/"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two parts of the suites; without either option all tests run that are named."""
    group = parser.getgroup("parts", "parts of bluebridge's own suites")
    group.addoption("--brief", action="store_true", help="run what `make test` runs")
    group.addoption("--rest", action="store_true", help="run what `make test` leaves out")
    group.addoption("--first", action="store_true", help="run the first parameters of each test")
    group.addoption(
        "--results", type=Path, metavar="DIR",
        help="keep what stock programs came to, and do not run again what passed there",
    )  # fmt: skip
    group.addoption(
        "--card", choices=tuple(cards.CARDS), default=cards.DEFAULT,
        help="of which adapter the stock programs are",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Have the order of `pytest_collection_modifyitems` kept, and times remembered.

    What tests start gets Ctrl-C, also in a run that a shell began in the background and ignores it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setswitchinterval(TURN_SECONDS)
    if config.getoption("brief") and not config.getoption("rest"):
        os.environ.setdefault("BLUEBRIDGE_WORLDS", "1")
    cache = getattr(config, "cache", None)
    if cache is not None and config.getoption("dist", "no") == _SIDE_BY_SIDE:
        if cache.get(_KEY, {}):
            config.option.loadscopereorder = False
        config.pluginmanager.register(_Times(cache))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the part does not run; in a worker, put the longest file first."""
    if config.getoption("brief") or config.getoption("rest"):
        wanted = ["worlds", *(name for name in ("brief", "rest") if config.getoption(name))]
        _keep(config, items, [item for item in items if part_of(item) in wanted])
    if config.getoption("first"):
        first: dict[str, pytest.Item] = {}
        for item in items:
            first.setdefault(item.nodeid.partition("[")[0], item)
        _keep(config, items, list(first.values()))
    cache = getattr(config, "cache", None)
    if cache is not None and hasattr(config, "workerinput"):
        seconds = expected(cache.get(_KEY, {}), Counter(_file(item.nodeid) for item in items))
        items.sort(key=lambda item: -seconds[_file(item.nodeid)])


def expected(seconds: dict[str, float], tests: Counter[str]) -> dict[str, float]:
    """The seconds that each file will take; a test of an unknown one takes as long as others."""
    usual = sum(seconds.values()) / max(1, len(seconds))
    return {file: count * seconds.get(file, usual) for file, count in tests.items()}


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Leave only these items, and tell pytest of the others."""
    left_out = {*items}.difference(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept


def part_of(item: pytest.Item) -> str:
    """The part to which this test belongs: `brief`, `rest`, `worlds` or `long`.

    `--brief` and `--rest` both run `worlds`, the one for a time, the other all; none `long`. Tests
    that draw examples are `worlds`, too: the one has a few, always the same, the other new ones.
    The mark nearest to the test counts. `brief("ID", ...)` means these parameters of it only.
    """
    if item.get_closest_marker("long"):
        return "long"
    for mark in item.iter_markers():
        if mark.name == "full":
            return "rest"
        if mark.name == "worlds":
            return "worlds"
        if mark.name == "brief":
            parameters = item.name.partition("[")[2].removesuffix("]")
            return "brief" if not mark.args or parameters in mark.args else "rest"
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return "worlds"
    return "rest" if item.nodeid.startswith(_GUESTS) else "brief"


class _Times:
    """Adds up what the tests of each file take."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._seconds: dict[str, float] = defaultdict(float)
        self._tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call or teardown of a test, in any worker."""
        self._seconds[_file(report.nodeid)] += report.duration
        self._tests[_file(report.nodeid)].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Files that did not run this time keep the time they had."""
        took = {file: all_ / len(self._tests[file]) for file, all_ in self._seconds.items()}
        self._cache.set(_KEY, {**self._cache.get(_KEY, {}), **took})


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
