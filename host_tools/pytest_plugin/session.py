"""A test session with a lab: its folders, the signals that end it, its reports."""

from __future__ import annotations

import contextlib
import os
import signal
import sysconfig
import threading
import time
import types
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import cast

import _pytest
import pluggy
import pytest
from _pytest._code.code import ExceptionRepr

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.stacks import with_lines
from bluebridge.host_tools.pytest_plugin import evidence, kernels
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.pytest_plugin.scratch import (
    Keep,
    Scratch,
    ScratchBase,
    page_path,
    write_page,
)
from bluebridge.images.cache import HOME, PACKAGE
from bluebridge.printable import printable_lines

_LOGS = ("dmesg-*.txt", "console-*.log", "qemu-*.log", "server.log")
_TAIL_LINES = 15
_QEMU_WARNING = ": warning: "
"""A part of lines that QEMU prints at every start; they are left out."""
_TRANSCRIPT_LINES = 400
_TAIL_BYTES = 64 * 1024
_ROOMS = ("host_tools", "images", "guest", "device")
_OURS = (f"{PACKAGE}/", *(f"{HOME / name}/" for name in _ROOMS))
_RUNNER = tuple(f"{Path(module.__file__ or '').parent}/" for module in (_pytest, pluggy))
_HIDDEN = (*_OURS, *_RUNNER, f"{sysconfig.get_path('stdlib')}/")

FOLDER_PROPERTY, PAGE_PROPERTY = "bluebridge_scratch", "bluebridge_page"
FAULTS_PROPERTY, REQUEST_PROPERTY = "bluebridge_faults", "bluebridge_failed_request"

Section = tuple[str, str]

_FAILED = pytest.StashKey[bool]()


def sections(lab: Lab, node: str, error: BaseException | None) -> Iterator[Section]:
    """Yield title and text of each section below the traceback of a failed test."""
    folders = lab.base.used_by(node)
    shown = ""
    for failure in _lab_errors(error):
        if failure.transcript.strip():
            shown = _transcript(failure.transcript, folders)
            yield f"bluebridge: {failure.what}", shown
    found = lab.trouble(node)
    if found is not None and str(found) != str(error):
        yield "bluebridge: what happened to the pair", str(found)
    if found is not None and found.aloud and found.transcript.strip() not in shown:
        shown = _transcript(found.transcript, folders)
        yield "bluebridge: what the kernel reported", shown
    for folder in folders:
        evidence.keep_kernel_messages(lab.machines(folder), folder.path)
        found_there = evidence.on_the_bus(folder.path, node)
        if found_there.faults:
            yield "bluebridge: faults that took something", "\n".join(found_there.faults)
        if found_there.request:
            yield "bluebridge: the last request that failed", found_there.request
        yield from (section for section in _tails(folder.path) if section[1] not in shown)
        if lab.base.keep != "never" and (page := write_page(folder.path, node)) is not None:
            yield "bluebridge: what the pair did on the bus, as a page", str(page)
        yield "bluebridge: scratch folder", _place(folder, lab)


def places(lab: Lab, node: str) -> list[tuple[str, str]]:
    """Return the JUnit XML properties of a failed test: faults, its folders, the page in each."""
    found: list[tuple[str, str]] = []
    for folder in lab.base.used_by(node):
        on_the_bus = evidence.on_the_bus(folder.path, node)
        found += [(FAULTS_PROPERTY, line) for line in on_the_bus.faults]
        found += [(REQUEST_PROPERTY, on_the_bus.request)] if on_the_bus.request else []
        if lab.base.keep == "never":
            continue
        found.append((FOLDER_PROPERTY, str(folder.path)))
        if (page := page_path(folder.path, node)).exists():
            found.append((PAGE_PROPERTY, str(page)))
    return found


def _place(folder: Scratch, lab: Lab) -> str:
    left = " (removed at the end: keep is `never`)" if lab.base.keep == "never" else ""
    shared = f"\nshared by {', '.join(folder.tests)}" if len(folder.tests) > 1 else ""
    return f"{folder.path}{left}{shared}"


def _transcript(text: str, folders: list[Scratch]) -> str:
    """Return the whole text, or its end with the path of a file that has all of it."""
    lines = with_lines(printable_lines(text)).splitlines()
    if len(lines) <= _TRANSCRIPT_LINES:
        return "\n".join(lines)
    more = f"... {len(lines) - _TRANSCRIPT_LINES} lines before"
    if folders:
        path = folders[0].path / "transcript.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        more += f", all of them in {path}"
    return "\n".join([more, *lines[-_TRANSCRIPT_LINES:]])


def _tails(folder: Path) -> Iterator[Section]:
    for pattern in _LOGS:
        for path in sorted(folder.glob(pattern)):
            tail = _tail(path)
            if tail:
                yield f"bluebridge: end of {path.name}", tail


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TAIL_BYTES))
        text = printable_lines(stream.read())
    told = [line for line in text.splitlines() if line.strip() and _QEMU_WARNING not in line]
    return "\n".join(told[-_TAIL_LINES:])


# Tracebacks: a failure in a guest is no failure of this package, so its frames say nothing.


def tidy(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Remove the frames of this package from the tracebacks of `LabError`s and their causes."""
    for failure in _lab_errors(excinfo.value):
        failure.__traceback__ = _pruned(failure.__traceback__) or _first(failure.__traceback__)
        cause = failure.__cause__ or failure.__context__
        if cause is not None and _pruned(cause.__traceback__) is None:
            failure.__cause__, failure.__suppress_context__ = None, True
    if isinstance(excinfo.value, LabError):
        # Not `filter`: pytest goes through the frames behind the entries once more.
        tracebacks = type(excinfo.traceback)
        excinfo.traceback = tracebacks(excinfo.value.__traceback__ or [])


def _lab_errors(error: BaseException | None) -> list[LabError]:
    """The lab's failures among an exception and its causes, the last one first."""
    found: list[LabError] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, LabError):
            found.append(error)
        cause = error.__cause__
        error = cause or (None if error.__suppress_context__ else error.__context__)
    return found


def _pruned(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback without the frames of this package and of libraries, None if empty."""
    if traceback is None:
        return None
    rest = _pruned(traceback.tb_next)
    if traceback.tb_frame.f_code.co_filename.startswith(_HIDDEN):
        return rest
    return types.TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


def _first(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return the outermost frame of this package, where pytest called it.

    It is shown when no frame of the user is left.
    """
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.startswith(_OURS):
            frame, number = traceback.tb_frame, traceback.tb_lineno
            return types.TracebackType(None, frame, traceback.tb_lasti, number)
        traceback = traceback.tb_next
    return None


@contextlib.contextmanager
def open_lab(
    config: pytest.Config, folders: pytest.TempPathFactory, kernel: str = ""
) -> Iterator[Lab]:
    """Yield the session's lab, whose guests have `kernel`.

    Meanwhile a signal to end ends the session in good order.
    """
    keep = config.getoption("bluebridge_keep") or config.getini("bluebridge_keep") or "failed"
    base = ScratchBase(_root(config, folders), cast(Keep, keep))
    with Lab(base, kernel) as lab, _signals_end_the_session():
        yield lab


def _root(config: pytest.Config, folders: pytest.TempPathFactory) -> Path:
    """Return this process's own folder: several sessions, or workers of one, may run at once."""
    chosen = config.getini("bluebridge_scratch")
    if not chosen:
        return folders.getbasetemp() / "bluebridge"
    base = config.rootpath / Path(chosen).expanduser()
    return base / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@contextlib.contextmanager
def _signals_end_the_session() -> Iterator[None]:
    """SIGTERM and SIGHUP end the session as Ctrl-C does, unless they have handlers already."""

    def leave(number: int, _frame: FrameType | None) -> None:
        pytest.exit(f"stopped by {signal.Signals(number).name}", returncode=128 + number)

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if main else ()
    free = [each for each in numbers if signal.getsignal(each) is signal.SIG_DFL]
    with processes.handling(free, leave):
        yield


def report(
    lab: Lab, item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Wrap the making of a report: tidy tracebacks, add sections, judge the folders."""
    excinfo = call.excinfo
    if excinfo is not None and not item.config.getoption("fulltrace"):
        tidy(excinfo)
    made = yield
    if excinfo is not None and not excinfo.errisinstance(pytest.skip.Exception):
        lab.failed(item.nodeid)
    if made.failed:
        item.stash[_FAILED] = True
        error = excinfo.value if excinfo is not None else None
        found = list(sections(lab, item.nodeid, error))
        if isinstance(made.longrepr, ExceptionRepr):  # so that JUnit XML has them too
            for title, text in found:
                made.longrepr.addsection(title, text, "-")
        else:
            made.sections.extend(found)
        new = [each for each in places(lab, item.nodeid) if each not in item.user_properties]
        item.user_properties.extend(new)  # the report of the teardown, which pytest reads, has them
        made.user_properties = list(item.user_properties)
    if lab.kernel:
        made.user_properties.append((kernels.PROPERTY, lab.kernel))
    if call.when == "teardown":
        lab.base.judge(item.nodeid, item.stash.get(_FAILED, False))
    return made
