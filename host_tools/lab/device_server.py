"""The device server process: started, awaited, watched, ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.device.server import option_table
from bluebridge.device.server.options import DEFAULTS, ServerOptions
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import hardware_control
from bluebridge.host_tools.processes import process
from bluebridge.images.source import HOME

_FIRST_MAC = 0x0002C9BB0001
_MACS_OF_A_PAIR = 0x400
"""Ports and nodes of an HCA take steps of 0x100 from its MAC (`HcaConfig.port_guid`)."""


@dataclass(frozen=True)
class ServerConfig:
    """The devices that the server is asked to emulate."""

    hcas: Mapping[str, Path]
    """Name of each HCA and the socket it listens on."""
    log: Path | None
    """Folder of the bus log; None switches it off."""
    library: Path
    """The path of libvfio-user.so."""
    options: ServerOptions = DEFAULTS
    """The options of HCAs and of the log."""
    more: tuple[str, ...] = ()
    """Arguments of `python -m bluebridge.device` besides: of bridges, and the user's own."""
    control: Path | None = None
    """Socket for `tell`; None for none."""
    networks: Mapping[str, int] = field(default_factory=dict)
    """Number of the network that an HCA is on, by its name; those of other HCAs are on 0."""
    pair: int = 1
    """Number of the pair on this machine: no two have MAC addresses or GUIDs in common."""

    def mac(self, index: int) -> str:
        """MAC address of the HCA that was named as number `index`, from 0."""
        number = _FIRST_MAC + (self.pair - 1) * _MACS_OF_A_PAIR + index
        return number.to_bytes(6, "big").hex(":")


class DeviceServer:
    """`python -m bluebridge.device` as a child process."""

    def __init__(self, config: ServerConfig, logs: Path) -> None:
        """Prepare the server; its standard error goes to `server.log` in `logs`."""
        self._config = config
        self._messages = logs / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 30.0) -> None:
        """Start the server and wait until it is ready; main thread only."""
        self.spawn()
        self.wait(timeout)

    def spawn(self) -> None:
        """Start the process; main thread only."""
        argv = [sys.executable, "-m", "bluebridge.device"]
        for index, (name, path) in enumerate(self._config.hcas.items()):
            words = f"name={name},socket={path},mac={self._config.mac(index)}"
            network = self._config.networks.get(name, 0)
            argv += ["--hca", f"{words},net={network}" if network else words]
        if self._config.log is not None:
            argv += ["--log", str(self._config.log)]
        if self._config.control is not None:
            argv += ["--control", str(self._config.control)]
        env = {"PYVFIO_USER_LIBRARY": str(self._config.library), "PYTHONUNBUFFERED": "1"}
        with self._messages.open("wb") as messages:
            self._process = process.spawn(
                [*argv, *option_table.words(self._config.options), *self._config.more],
                env=env,
                cwd=HOME,
                stdout=subprocess.PIPE,
                stderr=messages,
            )

    def wait(self, timeout: float = 30.0) -> None:
        """Wait for its `ready`. Raises `LabError` with its own last line when it gives up."""
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
        """The process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def tell(self, line: str) -> list[str]:
        """Have it carry out a line of `device.server.control`; the lines of its answer."""
        assert self._config.control is not None, "the server has no control socket"
        return hardware_control.tell(self._config.control, line)

    def messages(self) -> str:
        """Return the text that the server has written to its standard error."""
        return self._messages.read_text(errors="replace") if self._messages.exists() else ""

    def trouble(self) -> LabError | None:
        """Why the server is no longer there, or None while it runs."""
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
        """Memory of the process that is its own: anonymous resident pages (guest RAM excluded)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise LabError("the kernel does not tell RssAnon", "use Linux 4.5 or later")

    def cpu_seconds(self) -> float:
        """Processor time the process has used, user and system, to the nanosecond."""
        # One thread, so the main thread's account is the process's.
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def stop(self) -> None:
        """SIGTERM, so that the log is flushed and the sockets are removed; then wait."""
        if self._process is not None:
            process.stop(self._process)
            if self._process.stdout is not None:
                self._process.stdout.close()
