"""Starts keepers for the command `up`: all of them come up, or none stays."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.keeper import control, keeper
from bluebridge.host_tools.keeper.claims import Claim, claim_number
from bluebridge.host_tools.keeper.record import PairRecord, Plan

_GRACE = 30.0
"""The seconds that a keeper may take to end its pair before it is killed with all that is left."""
_PAUSE = 0.01
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
"""The number of pairs that are started side by side; each boots two guests."""


Say = Callable[["Child", str], None]
"""Called with a child and a message of progress from it."""


@dataclass
class Child:
    """The process of a keeper that was forked and has not been told to keep its pair."""

    claim: Claim
    pid: int
    socket: socket.socket
    """The socket to the keeper; its closing ends a keeper that was not told to keep its pair."""
    reader: control.Reader
    ready: bool = False


def launch(count: int, plan: Callable[[int], Plan], progress: Progress) -> list[PairRecord]:
    """Start `count` pairs, each as `plan` says for its number; return their records.

    Main thread only. On any exception all pairs are ended before it is raised; it is a `LabError`
    if a pair fails to start.
    """
    children: list[Child] = []

    def say(child: Child, text: str) -> None:
        progress(f"pair {child.claim.number}: {text}" if count > 1 else text)

    try:
        while len(children) < count:
            fresh = [_fork(plan, children) for _ in range(min(_AT_ONCE, count - len(children)))]
            _await(fresh, say)
        records = []
        for child in children:
            if (record := child.claim.record()) is None:
                raise LabError(f"pair {child.claim.number} ended as soon as it had begun")
            records.append(record)
        for number in _ENDING:  # from here on they stay, so our end must not look like theirs
            signal.signal(number, signal.SIG_IGN)
        for child in children:
            child.socket.sendall(keeper.KEEP)
    except BaseException:
        with _undisturbed():
            _end(children)
        raise
    for child in children:
        child.socket.close()
    return records


def _fork(plan: Callable[[int], Plan], children: list[Child]) -> Child:
    claim = claim_number()
    ours, theirs = socket.socketpair()
    try:
        wanted = plan(claim.number)
        parent = os.getpid()
        pid = os.fork()
    except BaseException:
        claim.close()
        claim.clear()
        raise
    if pid == 0:
        # Sockets of other keepers must not stay open here: those see the end of the last copy only.
        _become_keeper(claim, wanted, theirs, parent, [ours, *(each.socket for each in children)])
    theirs.close()
    claim.close()  # the keeper has it now
    children.append(Child(claim, pid, ours, control.Reader(ours)))
    return children[-1]


def _become_keeper(
    claim: Claim, plan: Plan, up: socket.socket, parent: int, others: Sequence[socket.socket]
) -> NoReturn:
    status = 1
    try:
        for each in others:
            each.close()
        status = keeper.run(claim, plan, up, parent)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _await(children: Sequence[Child], say: Say) -> None:
    """Relay progress until all children are ready. Raises `LabError` when one fails."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.socket, selectors.EVENT_READ, child)
        while not all(child.ready for child in children):
            for key, _ in selector.select():
                _listen(key.data, say)


def _listen(child: Child, say: Say) -> None:
    for message in child.reader.read():
        if "progress" in message:
            say(child, str(message["progress"]))
        elif "error" in message:
            raise control.as_error(message["error"])
        elif "done" in message:
            child.ready = True
    if child.reader.over:
        record = child.claim.record()
        log = f"read {record.logs}/keeper.log" if record and record.logs else ""
        raise LabError(f"the keeper of pair {child.claim.number} ended unexpectedly", log)


# Failure.


def _end(children: Sequence[Child]) -> None:
    """End all keepers with their pairs, and remove their folders."""
    for child in children:
        child.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    for child in children:
        _reap(child.pid, deadline)
        while child.claim.alive() and time.monotonic() < deadline:  # its folder is being removed
            time.sleep(_PAUSE)
        child.claim.clear()


def _reap(pid: int, deadline: float) -> None:
    """Wait for the end of a child of ours; it is killed at `deadline` (monotonic)."""
    descriptor = os.pidfd_open(pid)
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            os.kill(pid, signal.SIGKILL)
    os.close(descriptor)
    os.waitpid(pid, 0)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and other signals that end this process until the `with` block is through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
