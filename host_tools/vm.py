"""One guest: a QEMU process with its control socket, its console, its agent and its devices."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from host_tools import machine, process
from host_tools.agent import Agent, AgentRefused, Completed, Identity
from host_tools.errors import LabError
from host_tools.machine import Boot, Emulator, Machine
from host_tools.qmp import Qmp, QmpError
from host_tools.transcript import Transcript

if TYPE_CHECKING:  # pexpect is dear at start-up, and many a run never looks at the console
    from host_tools.console import Console

_T = TypeVar("_T")
_START_SECONDS = 60.0
_MIGRATION_SECONDS = 60.0
_PLUG_SECONDS = 30.0
_BIND_SECONDS = 5.0
_LAST_MOMENT = 1.0
_PAUSE = 0.005  # between two looks at something that cannot be waited on
_ON_SIGNAL = "terminating on signal"  # what QEMU prints, to leave with status 0

Alarm = Callable[[], LabError | None]


@dataclass(frozen=True)
class VmConfig:
    """What a guest consists of."""

    name: str
    machine: Machine = field(default_factory=Machine)
    sockets: tuple[Path, ...] = ()
    """vfio-user sockets of its devices, in the order of their root ports."""


class Vm:
    """A guest: `spawn`, `attach`, `release` or `load`, use it, `stop`; as often as you like."""

    def __init__(self, config: VmConfig, emulator: Emulator, folder: Path, logs: Path) -> None:
        """Sockets go to `folder`, the transcript and QEMU's messages to `logs`."""
        self.config = config
        self.name = config.name
        self.transcript = logs / f"console-{config.name}.log"
        self.console_socket = folder / f"console-{config.name}.sock"
        self.agent_sockets = machine.agent_sockets(folder, config.name)
        self.alarms: list[Alarm] = []
        """What else may go wrong during a wait: the server's death, the other guest's panic."""
        self.touched = False
        """Whether agent, console or control socket were used since the guest was made ready."""
        self._qmp_socket = folder / f"qmp-{config.name}.sock"
        self._messages = logs / f"qemu-{config.name}.log"
        self._argv = config.machine.arguments(config.name, emulator, folder, self.transcript)
        self._env = emulator.env
        self._kernel = Transcript(config.name, self.transcript)
        self._said_before = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None
        self._console: Console | None = None
        self._agent: Agent | None = None

    def __repr__(self) -> str:
        return f"<guest {self.name}>"

    # Power.

    def spawn(self, boot: Boot | None) -> None:
        """Start QEMU with its CPUs halted, for a boot or for a restore; main thread only."""
        self._kernel.skip()
        more = machine.start_arguments(boot) if boot else ["-incoming", "defer"]
        for port, path in enumerate(self.config.sockets if boot else ()):
            more += machine.device_arguments(port, path)
        with self._messages.open("ab") as messages:
            self._said_before = messages.tell()
            self._process = process.spawn(
                [*self._argv, *more], env=self._env, stdout=messages, stderr=messages
            )

    def attach(self) -> None:
        """Take hold of the control socket of a QEMU that was just spawned."""
        self._qmp = self._attach(lambda: Qmp.connect(self._qmp_socket))

    def release(self) -> None:
        """Let the CPUs of a QEMU that was spawned for a boot run."""
        self._order("cont")

    def load(self, state: Path) -> None:
        """Load a snapshot into a QEMU that was spawned for that, and let the CPUs run."""
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
            time.sleep(_PAUSE)

    def _order(self, name: str, **arguments: Any) -> Any:
        """A command to QEMU; when it is gone the reason is raised, not how we noticed."""
        try:
            return self.qmp.command(name, **arguments)
        except QmpError as error:
            raise self._obituary() or error from None

    def wait_for_agent(self, timeout: float = 180.0) -> None:
        """Wait until the guest is up and its agent answers."""
        self._agent = Agent.connect(self.name, self.agent_sockets, timeout, [self._alarm])

    def personalise(self) -> None:
        """Make a restored guest somebody: host name, machine-id, clock, randomness."""
        self.agent.personalise(Identity(self.name))

    def stop(self) -> None:
        """End QEMU without ceremony: its disks are memory, there is nothing to flush."""
        self.forget_agent()
        for connection in (self._console, self._qmp):
            if connection is not None:
                connection.close()
        self._console = self._qmp = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _attach(self, connect: Callable[[], _T]) -> _T:
        """Connect to a socket that QEMU is about to open; raises `LabError` if it dies instead."""
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
                time.sleep(_PAUSE)
            except QmpError as error:
                raise self._obituary() or error from None

    def _obituary(self, patience: float = _LAST_MOMENT) -> LabError | None:
        """Why QEMU hung up, once its process is gone."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self.trouble()

    # Devices.

    def plug(self, port: int, socket: Path) -> None:
        """Plug the device of a vfio-user server into root port `port` and wait for the guest.

        Raises `LabError` when QEMU cannot reach the server or the guest does not list it. There
        is no way back: QEMU 11.1 dies of an assertion when a vfio-user device with MSI-X is
        removed (its vfio_user_msix_teardown comes after the BAR's end), so a guest gets rid of a
        device by being restored.
        """
        self._order("device_add", **machine.vfio_user(port, socket))
        deadline = time.monotonic() + _PLUG_SECONDS
        while self.function(port) is None:
            if time.monotonic() > deadline:
                raise LabError(
                    f"guest {self.name} does not see the device behind port {port}",
                    f"read dmesg in the guest and {self._messages}",
                )
            time.sleep(_PAUSE)

    def function(self, port: int) -> dict[str, str] | None:
        """The PCI function behind a root port as the guest sees it (see `Agent.functions`)."""
        # Firmware numbers the buses in the order of the ports; nothing else has a bus.
        prefix = f"0000:{port + 1:02x}:"
        found = (each for each in self.agent.functions() if each["address"].startswith(prefix))
        return next(found, None)

    def bind(self, port: int, driver: str) -> None:
        """Give the device behind a root port to a driver that is loaded in the guest."""
        function = self.function(port)
        if function is None:
            raise LabError(f"guest {self.name} has no device behind port {port}")
        deadline = time.monotonic() + _BIND_SECONDS
        while True:
            try:
                return self.agent.bind(function["address"], driver)
            except AgentRefused:
                # It is listed before drivers may have it: pci_bus_add_device, match_driver.
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    # Use.

    def run(
        self,
        command: str | Sequence[str],
        timeout: float | None = 60.0,
        check: bool = True,
        **more: Any,
    ) -> Completed:
        """Run a shell line, or a list of words, in the guest; arguments as for `Agent.run`.

        Raises `CommandFailed` when `check` and the status is not 0, `CommandTimedOut`, or what
        happened to the guest; each names the console's transcript and carries everything that
        the command printed.
        """
        self.touched = True
        try:
            return self.agent.run(command, timeout, check=check, **more)
        except LabError as error:
            raise self._named(error) from None

    def _named(self, error: LabError) -> LabError:
        """The same failure, with the path of the console's transcript in its line."""
        if str(self.transcript) not in str(error):
            error.mend = "; ".join(filter(None, (error.mend, f"console: {self.transcript}")))
            error.args = (f"{error.what}; {error.mend}",)
        return error

    @property
    def console(self) -> Console:
        """The serial console, attached to at the first use."""
        from host_tools import console

        self.touched = True
        if self._console is None:
            self._console = self._attach(
                lambda: console.connect(self.name, self.console_socket, self.transcript)
            )
            self._console.alarms = [self._alarm]
            self._console.wake()
        return self._console

    @property
    def agent(self) -> Agent:
        """The agent, connected to at the first use; its waits end with the alarms."""
        self.touched = True
        if self._agent is None:
            self.wait_for_agent()
        assert self._agent is not None
        return self._agent

    def forget_agent(self) -> None:
        """Hang up; the next use of `agent` connects anew, as it must after a lost connection."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _alarm(self) -> LabError | None:
        """What is wrong with this guest, or with whatever else is watched."""
        alarms = [self.trouble, self._kernel.trouble, *self.alarms]
        return next((found for alarm in alarms if (found := alarm()) is not None), None)

    @property
    def qmp(self) -> Qmp:
        """The control socket."""
        self.touched = True
        assert self._qmp is not None, "the guest is not running"
        return self._qmp

    @property
    def pid(self) -> int:
        """The process id of QEMU."""
        assert self._process is not None, "the guest is not running"
        return self._process.pid

    def trouble(self) -> LabError | None:
        """Why QEMU is gone, or None while it runs: its kernel's last words, or its own."""
        if self._process is None or self._process.poll() is None:
            return None
        if (died := self._kernel.trouble()) is not None:
            return died
        said = self.messages()
        last = said.splitlines()[-1] if said.strip() else "it said nothing"
        return LabError(
            f"guest {self.name}: QEMU ended with status {self._process.returncode}: {last}",
            f"read {self._messages}",
            said,
        )

    def ended_by_itself(self) -> bool:
        """Whether QEMU is gone because the guest panicked or switched itself off."""
        gone = self._process is not None and self._process.poll() == 0
        return gone and _ON_SIGNAL not in self.messages()

    def was_killed(self) -> bool:
        """Whether somebody ended QEMU, by SIGKILL or by a signal that it obeys."""
        if self._process is None:
            return False
        # Its sockets close a moment before the kernel tells us of its end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_MOMENT)
        status = self._process.poll()
        return status == -signal.SIGKILL or (status == 0 and _ON_SIGNAL in self.messages())

    def messages(self) -> str:
        """What QEMU printed since it was spawned."""
        if not self._messages.exists():
            return ""
        return self._messages.read_bytes()[self._said_before :].decode(errors="replace")
