"""The pairs of a test session: they are started, lent to tests and ended here."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.console import Transcript
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin import kernels, marks
from bluebridge.host_tools.pytest_plugin.buslog import BusLog, since_beginning
from bluebridge.host_tools.pytest_plugin.scratch import BEGINS, ENDS, Scratch, ScratchBase, mark_of


@dataclass(eq=False)
class HeldPair:
    """A running pair with its scratch folder, its tests and its state."""

    pair: Pair
    scratch: Scratch
    wanted: LabConfig | None
    """The pair that the marks asked for; None if it was made by `Lab.pair`."""
    module: str | None
    """The node id of the module whose tests share the pair; None when no tests share it."""
    pids: tuple[int, ...] | None
    watches: list[Transcript]
    lent: float = 0.0
    """The time (monotonic) at which the present test got the pair; 0 for its first test."""
    report: LabError | None = None
    """What a kernel that checks itself found during a test, such as two locks in a circle."""
    unusable: bool = False
    """Whether a guest or a test failed, so that no other test can use the pair."""

    def trouble(self) -> LabError | None:
        """Return what happened to a guest or the server since the pair was made, if anything."""
        looks = [lambda: self.report, *(watch.trouble for watch in self.watches)]
        looks += [machine.trouble for machine in self.pair.machines]
        if self.pair.config.serves:
            looks.append(self.pair.server.trouble)
        return processes.first(looks)

    def is_clean(self) -> bool:
        """Whether nothing ran in the guests since they were restored and made ready."""
        untouched = not any(machine.touched for machine in self.pair.machines)
        untouched &= not any(host.touched for host in self.pair.hosts.values())
        return untouched and self.pids == pids_of(self.pair) and not self.pair.config.cold


class Lab:
    """Starts the pairs of one test session; at its end every pair is ended."""

    def __init__(self, base: ScratchBase, kernel: str = "") -> None:
        """Prepare the lab; `base` makes its scratch folders. Nothing starts yet.

        Guests have `kernel` where a test asks for none.
        """
        self.base = base
        self.kernel = kernel
        self._lendable: HeldPair | None = None
        self._own: list[HeldPair] = []
        self._trouble: LabError | None = None
        self.warnings: list[str] = []
        """Messages that the user should see although the tests run."""

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        """End all pairs that still run."""
        for held in self._all():
            self._end(held)
        self._lendable = None
        self._own.clear()

    # What tests call.

    @contextlib.contextmanager
    def pair(self, **fields: Any) -> Iterator[Pair]:
        """Yield a new pair of guests, which runs until the end of the `with` block.

        `fields` are those of `LabConfig`, but for `log`, `sockets` and `number`. It serves fixtures
        of a wider scope and tests with more than one pair. Its logs, `pair.logs`, are kept if one
        of the tests that ran meanwhile and used `lab` failed. Raises `TypeError` for another name.
        """
        config = LabConfig(**fields)
        if self._lendable is not None and self._lendable.module is None:
            self._drop(unusable_only=True)
        held = self._start(config, current_test())
        self._own.append(held)
        try:
            yield held.pair
        finally:
            self._own.remove(held)
            self._end(held)

    def scratch(self, node: str) -> Path:
        """Return the scratch folder of a test that has no pair; the first call makes it."""
        for each in self.base.used_by(node):
            if not any(held.scratch is each for held in self._own):
                return each.path
        made = self.base.make(node)
        made.tests.append(node)
        made.over = True
        return made.path

    def buslog(self, pair: Pair) -> BusLog:
        """Return the bus log of a pair from the beginning of the present test on.

        Raises `UsageError` for a pair without a bus log, `LabError` when it cannot be read.
        """
        if not (pair.config.bus_log and pair.config.serves):
            raise UsageError("this pair has no bus log", "ask for a pair with a device and bus_log")
        held = next((each for each in self._all() if each.pair is pair), None)
        begin = 0.0
        if held is not None and held.lent:
            try:
                begin = held.lent - time.monotonic() + since_beginning(LogReader(pair.logs))
            except LogError as error:
                raise LabError(f"the bus log cannot be read: {error}") from error
        alarms = [machine.trouble for machine in pair.machines]
        return BusLog(
            pair.logs,
            begin,
            [pair.server.trouble, *alarms],
            lambda text: pair.server.tell(f"mark {text}"),
        )

    # What the plugin calls.

    def lend(self, node: pytest.Item) -> Pair:
        """Return the pair for a test: that of its module, one known clean, or a new one."""
        wanted = marks.config_of(node)
        module = module_of(node) if marks.is_shared(node) else None
        held = self._lendable
        if held is not None and not _fits(held, wanted, module):
            self._drop()
            held = None
        if held is None:
            name = module or node.nodeid
            held = self._lendable = self._start(wanted, name)
            held.wanted, held.module = wanted, module
            _mark(held, mark_of(node.nodeid, BEGINS))
        else:
            _mark(held, mark_of(node.nodeid, BEGINS))
            held.lent = time.monotonic()
        if node.nodeid not in held.scratch.tests:
            held.scratch.tests.append(node.nodeid)
        return held.pair

    def take_back(self, node: pytest.Item) -> None:
        """Keep a test's pair for the next test, or end it."""
        held = self._lendable
        if held is None:
            return
        _mark(held, mark_of(node.nodeid, ENDS))
        held.unusable |= marks.may_crash(node) or held.trouble() is not None
        self._drop(unusable_only=held.module is not None or held.is_clean())

    def leave_module(self, node: pytest.Item, following: pytest.Item | None) -> None:
        """End the pair that a module shared when the next test belongs to another one."""
        held = self._lendable
        if held is None or held.module is None:
            return
        if following is None or module_of(following) != held.module:
            self._drop()

    def check(self, node: pytest.Item) -> None:
        """Fail a test during which a guest or the server failed without the test noticing."""
        for held in self._all():
            if node.nodeid in held.scratch.tests and held.trouble() is None:
                held.report = kernels.reported(held.pair)
        found = self.trouble(node.nodeid)
        if found is not None and not marks.may_crash(node):
            pytest.fail(str(found), pytrace=False)

    def trouble(self, node: str) -> LabError | None:
        """Return what happened to a guest or the server of a test, if anything."""
        for held in self._all():
            if node in held.scratch.tests and (found := held.trouble()) is not None:
                return found
        return self._trouble

    def machines(self, scratch: Scratch) -> list[Vm]:
        """Return the guests of the pair with that folder; none once it has ended."""
        held = next((each for each in self._all() if each.scratch is scratch), None)
        return [] if held is None else held.pair.machines

    def begin(self, node: pytest.Item) -> None:
        """Note the beginning of a test: open pairs concern it from now on if it uses `lab`."""
        self._trouble = None
        if "lab" in getattr(node, "fixturenames", ()):
            for held in self._own:
                if node.nodeid not in held.scratch.tests:
                    held.scratch.tests.append(node.nodeid)
                    held.lent = time.monotonic()

    def failed(self, node: str) -> None:
        """Note that a test failed, even if it was expected to: no other test gets its pair."""
        for each in self._all():
            if node in each.scratch.tests:
                each.unusable = True

    def _all(self) -> list[HeldPair]:
        return [*([self._lendable] if self._lendable else []), *self._own]

    def _start(self, config: LabConfig, name: str) -> HeldPair:
        scratch = self.base.make(name)
        scratch.tests.append(current_test())
        if self.kernel and not config.software.kernel:
            config = replace(config, software=replace(config.software, kernel=self.kernel))
        pair = Pair(replace(config, log=scratch.path))
        try:
            with _signal_handlers_kept():
                pair.__enter__()
        except BaseException as error:
            scratch.over = True
            if isinstance(error, SystemExit):  # a signal that `Pair` has turned into this
                pytest.exit("stopped by a signal", returncode=int(str(error.code)))
            raise
        self.warnings += pair.warnings
        watches = [Transcript(machine.name, machine.transcript) for machine in pair.machines]
        return HeldPair(pair, scratch, None, None, pids_of(pair), watches)

    def _drop(self, unusable_only: bool = False) -> None:
        """End the pair that could be lent; with `unusable_only`, only if no test can use it."""
        held = self._lendable
        if held is not None and (held.unusable or not unusable_only):
            self._lendable = None
            self._end(held)

    def _end(self, held: HeldPair) -> None:
        self._trouble = self._trouble or held.trouble()
        held.scratch.over = True
        held.pair.__exit__(None, None, None)


def _mark(held: HeldPair, text: str) -> None:
    """Put a mark into the bus log, if there is one and its server lives."""
    config = held.pair.config
    if config.serves and config.bus_log:
        with contextlib.suppress(LabError):
            held.pair.server.tell(f"mark {text}")


def _fits(held: HeldPair, wanted: LabConfig, module: str | None) -> bool:
    if held.unusable or held.wanted != wanted or held.module != module:
        return False
    return held.trouble() is None and (module is not None or held.is_clean())


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """A pair turns signals into `SystemExit`, which pytest takes for a failure of the test."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pids_of(pair: Pair) -> tuple[int, ...] | None:
    """Return the process ids of a pair's guests; None if a guest is switched off."""
    try:
        return tuple(machine.pid for machine in pair.machines)
    except AssertionError:
        return None


def module_of(node: pytest.Item) -> str:
    """Return the node id of a test's module."""
    return node.nodeid.partition("::")[0]


def current_test() -> str:
    """Return the node id of the test that is running or being set up, from pytest's environment."""
    return os.environ.get("PYTEST_CURRENT_TEST", "session").rpartition(" (")[0] or "session"
