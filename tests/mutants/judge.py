"""Runs of pytest in processes forked from this one, which has imported the product and its tests.

Such a process plants a defect in what is imported. Should no test notice it, all is imported anew
with it, and they run again: what a module did when it was imported may have kept the defect out.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.conftest import part_of
from tests.mutants.planting import plant, swap
from tests.mutants.table import Defect

_LIMIT = 60
"""Seconds of one test; a defect by which a test only becomes slow or stuck counts as unnoticed."""
_WHOLE_LIMIT = 180.0
"""Seconds of all tests of a defect, with which pytest may fail to end, too."""
_OPTIONS = (
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "--tb=native",
    "--hypothesis-seed=0",
    f"--timeout={_LIMIT}",
)
_KEPT = ("tests", "tests.conftest", "tests.mutants")
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Run:
    """Tests to run until the first one fails, with a defect in the product or without."""

    defect: Defect | None
    tests: tuple[str, ...]
    brief: bool = False
    """Whether to run only those that `make test` runs, which come first anyway."""


@dataclass(frozen=True)
class Ended:
    """How a run ended: the exit status of pytest, None after the time limit; the first failure."""

    status: int | None = None
    test: str = ""
    part: str = ""
    """`brief` if `make test` runs that test, `rest` if only `make test-all` does."""
    message: str = ""
    output: str = ""


def warm(tests: Sequence[str]) -> str:
    """Import what the tests need; return what pytest says if it cannot collect them."""
    os.environ["BLUEBRIDGE_PURE"] = "1"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *tests])
    gc.freeze()  # each process would look through all of that several times
    return output.getvalue() if status else ""


def _forget() -> None:
    """Have all of the product and its tests imported anew."""
    for name in list(sys.modules):
        ours = name.startswith(("bluebridge.", "tests.")) or name == "bluebridge"
        if ours and ".".join(name.split(".")[:2]) not in _KEPT:
            del sys.modules[name]


def run_all(runs: Sequence[Run], workers: int) -> Iterator[tuple[Run, Ended]]:
    """Run all, so many side by side; yields each as it ends."""
    waiting = deque(runs)
    running: list[_Process] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Process(waiting.popleft()))
            left = min(each.deadline for each in running) - time.monotonic()
            wait([each.process.sentinel for each in running], timeout=max(0.0, min(1.0, left)))
            for each in [each for each in running if each.over]:
                running.remove(each)
                yield each.run, each.end()
    finally:
        for each in running:
            each.end()


class _Process:
    """A process that carries out a run; what it starts is ended with it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._folder = tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True)
        self._path = Path(self._folder.name)
        (self._path / "output").touch()
        self.deadline = time.monotonic() + _WHOLE_LIMIT
        self.process: BaseProcess = _FORK.Process(target=_carry_out, args=(run, self._path))
        self.process.start()

    @property
    def over(self) -> bool:
        """Whether it has ended, or should have."""
        return not self.process.is_alive() or time.monotonic() > self.deadline

    def end(self) -> Ended:
        """End it and what it started; return how the run ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()  # it may not lead a group yet
        self.process.join()
        said = (self._path / "output").read_text(errors="replace")
        try:
            ended = Ended(**json.loads((self._path / "ended").read_text()), output=said)
        except FileNotFoundError:
            ended = Ended(output=said)
        self._folder.cleanup()
        return ended


def _carry_out(run: Run, folder: Path) -> None:
    os.setsid()
    with (folder / "output").open("w") as output, open(os.devnull) as nothing:
        for number, stream in enumerate((nothing, output, output)):
            os.dup2(stream.fileno(), number)
    os.environ.update(HYPOTHESIS_STORAGE_DIRECTORY=str(folder / "hypothesis"), COLUMNS="240")
    if run.defect is not None:
        plant(run.defect)
        if not swap(run.defect):
            _forget()
    watch = _Watch()
    words = [*_OPTIONS, f"--basetemp={folder / 'tmp'}", *["--brief"][: run.brief], *run.tests]
    status = int(pytest.main(words, plugins=[watch]))
    if run.defect is not None and status == pytest.ExitCode.OK:
        _forget()
        status = int(pytest.main(words, plugins=[watch]))
    ended = {**watch.found, "status": status}
    (folder / "ended.new").write_text(json.dumps(ended))
    (folder / "ended.new").rename(folder / "ended")
    sys.stdout.flush()
    os._exit(0)


class _Watch:
    """A plugin that puts the tests of `make test` before others and keeps the first failure."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self.found: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order them."""
        self._parts = {item.nodeid: part_of(item).replace("worlds", "brief") for item in items}
        items.sort(key=lambda item: self._parts[item.nodeid] != "brief")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what failed first."""
        if report.failed and not self.found:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else report.longreprtext
            part = self._parts.get(report.nodeid, "")
            self.found = {"test": report.nodeid, "part": part, "message": said}
