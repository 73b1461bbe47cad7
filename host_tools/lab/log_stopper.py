"""The process that has a pair's bus log stopped (`lab/log_stop.py`), and its condition."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import UsageError
from bluebridge.images.source import HOME


def check(text: str) -> None:
    """Raise `UsageError` for an expression that is no condition."""
    from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError

    try:
        Condition.parse(text)
    except ConditionError as error:
        raise UsageError(f"--stop-on: {error}") from error


class LogStopper:
    """The process that stops a bus log at a condition.

    `log` is the folder of the bus log, `control` the path of the server's control socket.
    """

    def __init__(self, log: Path, control: Path, condition: str) -> None:
        self._words = (str(log), str(control), condition)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, messages: Path) -> None:
        """Start the process; main thread only. Its standard error goes to the file `messages`."""
        argv = [sys.executable, "-m", "bluebridge.host_tools.lab.log_stop", *self._words]
        with messages.open("wb") as stderr:
            self._process = processes.spawn(argv, cwd=HOME, stderr=stderr)

    def stop(self) -> None:
        """End the process, if it was started."""
        if self._process is not None:
            processes.stop(self._process)
