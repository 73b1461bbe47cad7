"""The process of the device server: its start, its readiness, its failures and its end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.server.settings import ServerSettings
from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import hardware
from bluebridge.images.cache import HOME


class DeviceServer:
    """`python -m bluebridge.device` as a child process."""

    def __init__(
        self, settings: ServerSettings, library: Path, logs: Path, more: Sequence[str] = ()
    ) -> None:
        """Prepare the server; its standard error goes to `server.log` in `logs`.

        `library` is the path of libvfio-user.so, `more` are further arguments of the user.
        """
        self._settings = settings
        self._library = library
        self._more = more
        self._messages = logs / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 30.0) -> None:
        """Start the server and wait until it is ready; main thread only."""
        self.spawn()
        self.wait(timeout)

    def spawn(self) -> None:
        """Start the process without waiting until it is ready; main thread only."""
        argv = [sys.executable, "-m", "bluebridge.device", *self._settings.words(), *self._more]
        env = {"PYVFIO_USER_LIBRARY": str(self._library), "PYTHONUNBUFFERED": "1"}
        with self._messages.open("wb") as messages:
            self._process = processes.spawn(
                argv, env=env, cwd=HOME, stdout=subprocess.PIPE, stderr=messages
            )

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the server prints `ready`.

        Raises `LabError`, with the server's last line, when the server ends or `timeout` seconds
        pass.
        """
        deadline = time.monotonic() + timeout
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout
        said = b""
        while b"ready\n" not in said:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([pipe], [], [], max(0.0, left))
            chunk = os.read(pipe.fileno(), 4096) if readable else b""
            said += chunk
            if readable and not chunk:
                self._process.wait()
                raise self.trouble() or LabError("the device server closed its output")
            if not readable:
                raise LabError("the device server does not get ready", f"read {self._messages}")

    @property
    def pid(self) -> int:
        """The process id of the server, which must be running."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def tell(self, line: str) -> list[str]:
        """Have the server carry out a line of `device.server.control`; return its answer's lines.

        Raises `UsageError` with the server's objection, `LabError` when it does not answer.
        """
        assert self._settings.control is not None, "the server has no control socket"
        return hardware.tell(self._settings.control, line)

    def messages(self) -> str:
        """Return the text that the server has written to its standard error."""
        return self._messages.read_text(errors="replace") if self._messages.exists() else ""

    def trouble(self) -> LabError | None:
        """Return the error that says why the server has ended; None while it runs."""
        if self._process is None or self._process.poll() is None:
            return None
        said = self.messages()
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "no message")
        return LabError(
            f"the device server ended with status {self._process.returncode}: {last.strip()}",
            f"read {self._messages}",
            said[-4000:],
        )

    def resident_bytes(self) -> int:
        """Return the bytes of anonymous resident memory of the process, which exclude guest RAM.

        Raises `LabError` when the kernel does not tell.
        """
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise LabError("the kernel does not tell RssAnon", "use Linux 4.5 or later")

    def cpu_seconds(self) -> float:
        """Return the processor time the process has used, user and system, in seconds."""
        # One thread, so the main thread's account is the process's.
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def stop(self) -> None:
        """End the server by SIGTERM, so that it flushes the log and removes its sockets.

        Returns when the process has ended.
        """
        if self._process is not None:
            processes.stop(self._process)
            if self._process.stdout is not None:
                self._process.stdout.close()
