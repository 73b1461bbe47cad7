"""A side of a pair that has no guest: its programs, and its HCA for this process."""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.hosts.functions import HostFunction, environment
from bluebridge.host_tools.processes import Alarm
from bluebridge.printable import printable_lines

if TYPE_CHECKING:  # only for sides that this process itself drives
    from bluebridge.guest.verbs import Device
    from bluebridge.host_tools.hosts.machine import HostBus

_SLICE = 0.2
"""The seconds between two looks at the alarms."""
_READ_BYTES = 1 << 16


class Host:
    """A side without a guest: Python programs of this machine play it, one at a time.

    `begin`, `finish` and `interrupt` are a console's; `bus` and `hca` are for this process itself.
    """

    def __init__(self, name: str, functions: Sequence[HostFunction], transcript: Path) -> None:
        """Prepare side `name`; what its programs print is appended to `transcript`, too."""
        self.name = name
        self.functions = functions
        self.alarms: list[Alarm] = []
        self.touched = False
        """Whether a program or this process has used the side."""
        self._transcript = transcript
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = b""
        self._bus: HostBus | None = None
        self._hca: Device | None = None

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    # In this process.

    @property
    def bus(self) -> HostBus:
        """The registers of the side's HCA, which this process takes over at the first use.

        Raises `DeviceError` when a program has it.
        """
        if self._bus is None:
            from bluebridge.device.layout.pci import ADAPTER_IDS
            from bluebridge.host_tools.hosts.machine import HostMachine

            self.touched = True
            with contextlib.closing(HostMachine(self.name, self.functions)) as machine:
                self._bus = machine.open(machine.find(ADAPTER_IDS))
        return self._bus

    @property
    def hca(self) -> Device:
        """The side's HCA as a device of `guest.verbs`, brought up at the first use."""
        if self._hca is None:
            from bluebridge.guest.providers import open_device

            self._hca = open_device(self.bus)
        return self._hca

    def close(self) -> None:
        """Give the HCA back, if this process has it: programs may have it then."""
        if self._hca is not None:
            self._hca.close()
        if self._bus is not None:
            self._bus.close()
        self._hca = self._bus = None

    # Programs.

    def begin(self, command: str) -> None:
        """Start a command line whose first word is `python3`; main thread only."""
        self.touched = True
        _, *words = shlex.split(command)
        self._process = processes.spawn(
            [sys.executable, *words],
            env={"PYTHONUNBUFFERED": "1", **environment(self.name, self.functions)},
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

    def run(self, command: str, timeout: float = 60.0) -> tuple[int, str]:
        """Run a command line whose first word is `python3` to its end, as `begin` and `finish`."""
        self.begin(command)
        return self.finish(timeout)

    @property
    def pid(self) -> int:
        """The process id of the program that was begun last."""
        assert self._process is not None, "no program was begun"
        return self._process.pid

    def output(self, timeout: float) -> str:
        """Wait for the program's end; return its output. Raises `LabError` unless it ended well."""
        status, said = self.finish(timeout)
        if status:
            last = said.rpartition("\n")[2] or "nothing"
            raise LabError(
                f"host {self.name}: ended with status {status} and said: {last}", "", said
            )
        return said

    def interrupt(self) -> None:
        """Send the program what Ctrl-C sends."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """End what uses the side, without a farewell, as a guest that is switched off."""
        if self._bus is not None:
            self._bus.close()
        self._hca = self._bus = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def _text(self) -> str:
        return printable_lines(self._seen.decode(errors="replace")).strip("\n")
