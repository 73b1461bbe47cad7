"""Chooses a free port: QEMU serves one client per socket and lets others wait silently."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bluebridge.host_tools.agent.errors import AgentBusy, AgentError, AgentLost
from bluebridge.host_tools.errors import LabError

_PAUSE = 0.02


class Port:
    """A connected socket, and the lock by which this process alone uses it."""

    def __init__(self, connection: socket.socket, lock: int) -> None:
        self.connection = connection
        self._lock = lock

    def close(self) -> None:
        """Close the socket, then release the lock."""
        self.connection.close()
        with contextlib.suppress(OSError):
            os.close(self._lock)


def acquire(
    guest: str, sockets: Sequence[Path], timeout: float, trouble: Callable[[], LabError | None]
) -> Port:
    """Connect to the first free one of `sockets`, waiting up to `timeout` seconds.

    Raises `AgentBusy` when all stay taken, `AgentLost` when QEMU does not listen, and what
    `trouble` reports meanwhile.
    """
    deadline = time.monotonic() + timeout
    failure: AgentError = AgentLost(f"guest {guest} has no agent port")
    while True:
        for path in sockets:
            try:
                return _try(path)
            except BlockingIOError:
                failure = AgentBusy(
                    f"guest {guest}: all {len(sockets)} ports of the agent are in use",
                    "end another `bluebridge run` or `cp`",
                )
            except OSError as error:
                failure = AgentLost(f"guest {guest}: {path}: {error.strerror}", "is QEMU running?")
        if (found := trouble()) is not None:
            raise found
        if time.monotonic() > deadline:
            raise failure
        time.sleep(_PAUSE)  # neither the lock nor a socket that is not there can be waited on


def _try(path: Path) -> Port:
    """Connect to a port; raises `BlockingIOError` if it is taken, `OSError` if nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    lock = -1
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        connection.connect(str(path))
    except OSError:
        connection.close()
        if lock >= 0:
            os.close(lock)
        raise
    return Port(connection, lock)
