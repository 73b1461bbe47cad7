"""A QEMU process: started or restored, controlled by QMP, and why it ended."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.confinement import confined
from bluebridge.host_tools.machine.console import Transcript
from bluebridge.host_tools.machine.qemu_arguments import Boot, Emulator, GuestSize, NetworkBoot
from bluebridge.host_tools.processes import Alarm

_T = TypeVar("_T")
_START_SECONDS = 60.0
_MIGRATION_SECONDS = 60.0
_END_SECONDS = 3.0
_CAUSE_LOOKS = processes.LOOKS // 2
"""The looks at what may have ended QEMU: half of those that a caller of `trouble` may take."""
PAUSE = 0.005
"""The seconds between two looks at something that cannot be waited on."""
_ON_SIGNAL = "terminating on signal"  # what QEMU prints, to leave with status 0


class QmpError(LabError):
    """QEMU refused a command or did not answer it."""


class Qmp:
    """One connection to a QMP socket; not for use from two threads."""

    def __init__(self, connection: socket.socket, timeout: float = 30.0) -> None:
        """Take over a connected socket, read the greeting and leave negotiation mode."""
        self._socket = connection
        self._buffer = b""
        self._timeout = timeout
        self.events: list[dict[str, Any]] = []
        greeting = self._next(time.monotonic() + timeout)
        if "QMP" not in greeting:
            raise QmpError(f"no QMP greeting but {greeting!r}")
        self.command("qmp_capabilities")

    @classmethod
    def connect(cls, path: Path, timeout: float = 30.0) -> Qmp:
        """Connect to the socket at `path`, which must be listening."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return cls(connection, timeout)
        except (OSError, LabError):
            connection.close()
            raise

    def command(self, name: str, **arguments: Any) -> Any:
        """Run one command and return its result; events met on the way go to `events`.

        Raises `QmpError` when QEMU answers with an error, hangs up or takes too long. An argument's
        underscores become the dashes of QMP names.
        """
        request: dict[str, Any] = {"execute": name}
        if arguments:
            request["arguments"] = {key.replace("_", "-"): v for key, v in arguments.items()}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU closed its control socket before `{name}`") from error
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._next(deadline)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise QmpError(f"QEMU refused `{name}`: {answer['error'].get('desc')}")
            elif "return" in answer:
                return answer["return"]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _next(self, deadline: float) -> dict[str, Any]:
        """Return the next message, one JSON object per line. Raises `QmpError` at `deadline`."""
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise QmpError("QEMU does not answer on its control socket")
            self._socket.settimeout(remaining)
            try:
                chunk = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError as error:
                raise QmpError(f"QEMU closed its control socket: {error.strerror}") from error
            if not chunk:
                raise QmpError("QEMU closed its control socket")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise QmpError(f"QEMU sent a line that is not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise QmpError(f"QEMU sent no object: {line[:80]!r}")
        return message


class Qemu:
    """The QEMU process of one guest: `spawn`, `attach`, `release` or `load`, `stop`, repeatedly."""

    def __init__(
        self, name: str, size: GuestSize, emulator: Emulator, folder: Path, logs: Path
    ) -> None:
        """Prepare a process: sockets go to `folder`, transcript and QEMU's messages to `logs`."""
        self.name = name
        self.transcript = logs / f"console-{name}.log"
        self.causes: list[Alarm] = []
        """The alarms, such as the device server's end, that are the cause when this guest ends."""
        self._folder = folder
        self._qmp_socket = folder / f"qmp-{name}.sock"
        self._messages = logs / f"qemu-{name}.log"
        self._argv = size.arguments(name, emulator, folder, self.transcript)
        self._env = emulator.env
        self._kernel = Transcript(name, self.transcript)
        self._said_before = 0
        self._cause_awaited = False
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None

    def spawn(
        self,
        boot: Boot | NetworkBoot | None,
        devices: Mapping[int, Path] | None = None,
        saved: Path | None = None,
    ) -> None:
        """Start QEMU with its CPUs halted, for a boot or for a restore; main thread only.

        `devices` are vfio-user sockets for a boot, by root port. Snapshots may be saved in the
        folder `saved`.
        """
        self._kernel.skip()
        self._cause_awaited = False
        more = qemu_arguments.start_arguments(boot) if boot else ["-incoming", "defer"]
        seen = boot.device_ids if isinstance(boot, NetworkBoot) else {}
        for port, path in (devices or {}).items():
            more += qemu_arguments.device_arguments(port, path, seen.get(port))
        read = [] if boot is None else [path for path in boot.files() if path is not None]
        for stale in qemu_arguments.sockets(self._folder, self.name):
            stale.unlink(missing_ok=True)  # of the process before, which may not remove files
        self.transcript.touch()
        with (
            self._messages.open("ab") as messages,
            confined(Path(self._argv[0]), self._folder, read, [self.transcript], saved) as confine,
        ):
            self._said_before = messages.tell()
            self._process = processes.spawn(
                [*self._argv, *more],
                env=self._env,
                stdout=messages,
                stderr=messages,
                confine=confine,
            )

    def attach(self) -> None:
        """Connect to the control socket of a QEMU that was just spawned. Raises `LabError`."""
        self._qmp = self._attach(lambda: Qmp.connect(self._qmp_socket))

    def release(self) -> None:
        """Start the CPUs of a QEMU that was spawned for a boot."""
        self._order("cont")

    def load(self, state: Path) -> None:
        """Load a snapshot into a QEMU that was spawned for a restore, and start the CPUs."""
        self._migration_format()
        self._order("migrate-incoming", uri=f"file:{state}")
        self._migrated("restored")
        self._order("cont")

    def save(self, state: Path) -> None:
        """Halt the CPUs and write a snapshot; the guest must have no vfio-user device."""
        self._order("stop")
        self._migration_format()
        self._order("migrate", uri=f"file:{state}")
        self._migrated("saved")

    def _migration_format(self) -> None:
        wanted = [{"capability": "mapped-ram", "state": True}]
        self._order("migrate-set-capabilities", capabilities=wanted)

    def _migrated(self, what: str) -> None:
        deadline = time.monotonic() + _MIGRATION_SECONDS
        while (status := self._order("query-migrate").get("status")) != "completed":
            if status == "failed" or time.monotonic() > deadline:
                raise LabError(f"guest {self.name} was not {what}", f"read {self._messages}")
            time.sleep(PAUSE)

    def _order(self, name: str, **arguments: Any) -> Any:
        """Run a QMP command; if QEMU is gone, raise the reason of its end, not the QMP error."""
        try:
            assert self._qmp is not None, "the guest is not running"
            return self._qmp.command(name, **arguments)
        except QmpError as error:
            raise self._why_it_hung_up() or error from None

    def stop(self) -> None:
        """Kill QEMU without a shutdown: its disks are memory, there is nothing to flush."""
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _attach(self, connect: Callable[[], _T]) -> _T:
        """Connect to a socket that QEMU is about to open; raises `LabError` if it ends instead."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return connect()
            except (FileNotFoundError, ConnectionRefusedError):
                if (trouble := self.trouble()) is not None:
                    raise trouble from None
                if time.monotonic() > deadline:
                    raise LabError(
                        f"guest {self.name}: QEMU opens no socket", f"read {self._messages}"
                    ) from None
                time.sleep(PAUSE)
            except QmpError as error:
                raise self._why_it_hung_up() or error from None

    def _why_it_hung_up(self, patience: float = _END_SECONDS) -> LabError | None:
        """Return why QEMU hung up, once its process has ended; None if it has not."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self.trouble()

    @property
    def pid(self) -> int:
        """The process id of QEMU."""
        assert self._process is not None, "the guest is not running"
        return self._process.pid

    def trouble(self) -> LabError | None:
        """Return why QEMU has ended; None while it runs.

        The reason is the guest kernel's last message, or QEMU's own.
        """
        process = self._process
        if process is None or process.poll() is None:
            return None
        died = self._blamed()
        if died is None and process.returncode == -signal.SIGABRT and not self._cause_awaited:
            # So it ends on a broken vfio-user socket, which the server's own end comes just after.
            self._cause_awaited = True
            died = processes.wait_for_cause([self._blamed], _CAUSE_LOOKS)
        if died is not None:
            return died
        said = self.messages()
        last = said.splitlines()[-1] if said.strip() else "it said nothing"
        return LabError(
            f"guest {self.name}: QEMU ended with status {process.returncode}: {last}",
            f"read {self._messages}",
            said,
        )

    def _blamed(self) -> LabError | None:
        """Return what ended this guest besides QEMU itself: first `causes`, then its kernel."""
        return processes.first((*self.causes, self._kernel.trouble))

    def kernel_trouble(self) -> LabError | None:
        """Return the console's last message of a kernel in trouble, which may still run."""
        return self._kernel.trouble()

    def ended_by_itself(self) -> bool:
        """Whether QEMU has ended because the guest panicked or switched itself off."""
        gone = self._process is not None and self._process.poll() == 0
        return gone and _ON_SIGNAL not in self.messages()

    def was_killed(self) -> bool:
        """Whether QEMU was ended from outside, by SIGKILL or by a signal that it handles."""
        if self._process is None:
            return False
        # Its sockets close a moment before the kernel tells us of its end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        status = self._process.poll()
        return status == -signal.SIGKILL or (status == 0 and _ON_SIGNAL in self.messages())

    def messages(self) -> str:
        """Return the text that QEMU printed since it was spawned."""
        if not self._messages.exists():
            return ""
        return self._messages.read_bytes()[self._said_before :].decode(errors="replace")
