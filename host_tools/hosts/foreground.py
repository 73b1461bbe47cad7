"""The program that runs in the foreground of a side without a guest, as on a guest's console."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.hosts.functions import HostFunction
from bluebridge.host_tools.hosts.machine import environment
from bluebridge.host_tools.processes import Alarm
from bluebridge.images.cache import HOME
from bluebridge.printable import printable_lines

_SLICE = 0.2
"""The seconds between two looks at the alarms."""
_READ_BYTES = 1 << 16


class Foreground:
    """Runs one Python program at a time as a process of this machine; used as a `Console` is."""

    def __init__(self, name: str, functions: Sequence[HostFunction], transcript: Path) -> None:
        """Prepare side `name`; what its programs print is appended to `transcript`, too."""
        self.name = name
        self.alarms: list[Alarm] = []
        self.functions = functions
        self._transcript = transcript
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = b""

    def begin(self, command: str) -> None:
        """Start a command line whose first word is `python3`; main thread only."""
        _, *words = shlex.split(command)
        self._process = processes.spawn(
            [sys.executable, *words],
            env={"PYTHONUNBUFFERED": "1", **environment(self.name, self.functions)},
            cwd=HOME,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._seen = b""

    def finish(self, timeout: float, progress: str | None = None) -> tuple[int, str]:
        """Wait for the program's end; return its exit status, as shells have it, and its output.

        With `progress`, returns (-1, "") as soon as that pattern appears in its output instead.
        Raises `LabError` at an alarm, and after `timeout` seconds.
        """
        assert self._process is not None and self._process.stdout is not None
        pipe, deadline = self._process.stdout, time.monotonic() + timeout
        wanted = re.compile(progress.encode()) if progress else None
        while wanted is None or not wanted.search(self._seen):
            left = deadline - time.monotonic()
            if not select.select([pipe], [], [], max(0.0, min(_SLICE, left)))[0]:
                if (trouble := processes.first(self.alarms)) is not None:
                    raise trouble
                if left <= 0:
                    raise LabError(
                        f"host {self.name}: no end within {timeout:.0f} s",
                        f"read {self._transcript}",
                        self._text()[-4000:],
                    )
                continue
            data = os.read(pipe.fileno(), _READ_BYTES)
            if not data:
                status = self._process.wait()
                return (128 - status if status < 0 else status), self._text()
            self._seen += data
            with self._transcript.open("ab") as stream:
                stream.write(data)
        return -1, ""

    def interrupt(self) -> None:
        """Send the program what Ctrl-C sends."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """End the program, if one runs, without a farewell, as a guest that is switched off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def _text(self) -> str:
        return printable_lines(self._seen.decode(errors="replace")).strip("\n")
