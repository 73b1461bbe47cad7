"""Starting keepers from the command `up`: all of them come up, or none stays."""

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

from host_tools.errors import LabError
from host_tools.keeper import keeper, messages
from host_tools.keeper.plan import Plan
from host_tools.keeper.record import PairRecord
from host_tools.keeper.registry import Claim
from host_tools.progress import Progress

_GRACE = 30.0
"""Seconds a keeper may take to end its pair before it is killed; the kernel ends the rest then."""
_PAUSE = 0.01
_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
"""Pairs started side by side: each boots two guests."""


@dataclass
class Child:
    """A keeper that was forked and is not ready yet, or not told to keep."""

    claim: Claim
    pid: int
    leash: socket.socket
    reader: messages.Reader
    ready: bool = False


def launch(
    claims: Sequence[Claim], plan: Callable[[Claim], Plan], progress: Progress
) -> list[PairRecord]:
    """Start a keeper for each of `claims` and wait until all pairs are ready; main thread only.

    Raises `LabError` for the first that fails, after the end of all others; so it is with any other
    exception. The claims are used up.
    """
    children: list[Child] = []
    try:
        for begin in range(0, len(claims), _AT_ONCE):
            batch = [
                _fork(claim, plan(claim), claims, children)
                for claim in claims[begin : begin + _AT_ONCE]
            ]
            _await(batch, _prefixes(claims, progress))
        records = [_record(child) for child in children]
        for child in children:
            child.leash.sendall(keeper.KEEP)
    except BaseException:
        with _undisturbed():
            _end(children, claims)
        raise
    for child in children:
        child.leash.close()
    return records


def _fork(claim: Claim, plan: Plan, claims: Sequence[Claim], children: list[Child]) -> Child:
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # What belongs to the parent or to other keepers must not stay open here: they end
            # with its last copy.
            for stranger in (ours, *(child.leash for child in children)):
                stranger.close()
            for other in claims:
                if other is not claim:
                    other.close()
            status = keeper.live(claim, plan, theirs, parent)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    theirs.close()
    child = Child(claim, pid, ours, messages.Reader(ours))
    children.append(child)
    claim.close()  # the keeper has it now
    return child


def _prefixes(claims: Sequence[Claim], progress: Progress) -> Callable[[Child, str], None]:
    """How to report what a child says: with several pairs, each line names its own."""

    def say(child: Child, text: str) -> None:
        progress(f"pair {child.claim.number}: {text}" if len(claims) > 1 else text)

    return say


def _await(children: Sequence[Child], say: Callable[[Child, str], None]) -> None:
    """Relay progress until all are ready. Raises `LabError` when one fails."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.leash, selectors.EVENT_READ, child)
        while not all(child.ready for child in children):
            for key, _ in selector.select():
                _listen(key.data, say)


def _listen(child: Child, say: Callable[[Child, str], None]) -> None:
    for message in child.reader.read():
        if "progress" in message:
            say(child, str(message["progress"]))
        elif "error" in message:
            raise messages.as_error(message["error"])
        elif "done" in message:
            child.ready = True
    if child.reader.over:
        record = child.claim.record()
        log = f"read {record.logs}/keeper.log" if record and record.logs else ""
        raise LabError(f"the keeper of pair {child.claim.number} ended unexpectedly", log)


def _record(child: Child) -> PairRecord:
    record = child.claim.record()
    if record is None:
        raise LabError(f"pair {child.claim.number} ended as soon as it had begun")
    return record


# Failure.


def _end(children: Sequence[Child], claims: Sequence[Claim]) -> None:
    """End all keepers and leave nothing of what was claimed."""
    for child in children:
        child.leash.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    for child in children:
        _reap(child.pid, deadline)
    for claim in claims:
        claim.close()
        while claim.alive() and time.monotonic() < deadline:  # its janitor is at work
            time.sleep(_PAUSE)
        claim.clear()


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
    """Put off Ctrl-C and other signals that end us until everything else has ended."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
