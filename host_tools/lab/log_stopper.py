"""The process that has a pair's bus log stopped (`lab/log_stop.py`), and its condition."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import UsageError
from bluebridge.images.cache import HOME


def check(text: str) -> None:
    """Raise `UsageError` for an expression that is no condition."""
    from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError

    try:
        Condition.parse(text)
    except ConditionError as error:
        raise UsageError(f"--stop-on: {error}") from error


def start(log: Path, control: Path, condition: str, messages: Path) -> subprocess.Popen[bytes]:
    """Start the process that stops the bus log in folder `log` at a condition; main thread only.

    `control` is the server's control socket; what goes wrong is told in the file `messages`.
    """
    words = ("bluebridge.host_tools.lab.log_stop", str(log), str(control), condition)
    with messages.open("wb") as stderr:
        return processes.spawn([sys.executable, "-m", *words], cwd=HOME, stderr=stderr)
