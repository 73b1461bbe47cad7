"""One guest: a QEMU process with its console, its agent and its devices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bluebridge.host_tools import processes
from bluebridge.host_tools.agent import Agent, AgentRefused, Completed, Identity
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.qemu import PAUSE, Qemu, Qmp
from bluebridge.host_tools.machine.qemu_arguments import Boot, Emulator, GuestSize, NetworkBoot, Nic
from bluebridge.host_tools.machine.silence import Silence
from bluebridge.host_tools.processes import Alarm

if TYPE_CHECKING:  # pexpect is dear at start-up, and many a run never looks at the console
    from bluebridge.host_tools.machine.console import Console

_PLUG_SECONDS = 30.0
_BIND_SECONDS = 5.0
_BOOT_SECONDS = 180.0
_PATIENCE = 8.0
"""How many times as long as another one a kernel may take that checks itself (KASAN, lockdep)."""


@dataclass(frozen=True)
class VmConfig:
    """The name of a guest, its size, and the sockets of its devices."""

    name: str
    size: GuestSize = field(default_factory=GuestSize)
    sockets: Mapping[int, Path] = field(default_factory=dict)
    """The vfio-user sockets of the guest's devices by their root ports."""
    nic: Nic | None = None
    """The virtio NIC that is plugged in once the guest runs."""


class Vm(Qemu):
    """A guest: its QEMU process, its console, its agent and its devices."""

    def __init__(self, config: VmConfig, emulator: Emulator, folder: Path, logs: Path) -> None:
        """Prepare a guest: sockets go to `folder`, the transcript and QEMU's messages to `logs`."""
        super().__init__(config.name, config.size, emulator, folder, logs)
        self.config = config
        self.console_socket = folder / f"console-{config.name}.sock"
        self.agent_sockets = qemu_arguments.agent_sockets(folder, config.name)
        self.alarms: list[Alarm] = []
        """The alarms of other parts that end a wait, such as a panic of the other guest."""
        self.touched = False
        """Whether agent, console or control socket were used since the guest was made ready."""
        self._console: Console | None = None
        self._agent: Agent | None = None

    def __repr__(self) -> str:
        return f"<guest {self.name}>"

    # Power.

    def wait_for_agent(self, timeout: float = _BOOT_SECONDS) -> None:
        """Wait until the guest is up and its agent answers. Raises `LabError`."""
        self._agent = Agent.connect(self.name, self.agent_sockets, timeout, [self._alarm])

    def wait_for_boot(self, usual: bool, checked: bool = False) -> None:
        """Wait as `wait_for_agent` for a guest that boots. Raises `LabError`.

        A kernel that is not a `usual` one writes to the console as it comes up; when it falls
        silent, it hangs. One that is `checked` checks itself and gets more time.
        """
        patience = _PATIENCE if checked else 1.0
        silence = Silence(self.name, self.transcript, self.pid, patience)
        if not usual:
            self.alarms.append(silence.trouble)
        try:
            self.wait_for_agent(_BOOT_SECONDS * patience)
        finally:
            if not usual:
                self.alarms.remove(silence.trouble)

    def personalise(self) -> None:
        """Give a restored guest its own host name, machine-id, clock and randomness."""
        self.agent.personalise(Identity(self.name))

    def power_on(self, boot: Boot | NetworkBoot | None) -> None:
        """Start QEMU, for a boot with the devices in place or, without `boot`, for a restore.

        Main thread only.
        """
        self.spawn(boot, self.config.sockets if boot else {})

    def stop(self) -> None:
        """End the guest in whatever state it is."""
        self.forget_agent()
        if self._console is not None:
            self._console.close()
            self._console = None
        super().stop()

    # Devices.

    def plug(self, port: int, socket: Path) -> None:
        """Plug the device of a vfio-user server into root port `port` and wait for the guest.

        Raises `LabError` when QEMU cannot reach the server or the guest does not list it. There
        is no way back: QEMU 11.1 fails an assertion when a vfio-user device with MSI-X is
        removed (its vfio_user_msix_teardown comes after the BAR's end), so a guest gets rid of a
        device by being restored.
        """
        self._order("device_add", **qemu_arguments.vfio_user(port, socket))
        self._wait_for_device(port)

    def plug_nic(self, port: int, nic: Nic) -> None:
        """Plug a virtio NIC into root port `port` and wait for the guest. Raises `LabError`."""
        self._order("netdev_add", **nic.backend())
        self._order("device_add", **nic.device(port))
        self._wait_for_device(port)

    def _wait_for_device(self, port: int) -> None:
        deadline = time.monotonic() + _PLUG_SECONDS
        while self.function(port) is None:
            if time.monotonic() > deadline:
                raise LabError(
                    f"guest {self.name} does not see the device behind port {port}",
                    f"read dmesg in the guest and {self._messages}",
                )
            time.sleep(PAUSE)

    def function(self, port: int) -> dict[str, str] | None:
        """Return the PCI function behind a root port as the guest sees it; None if there is none.

        Its fields are those of `Agent.functions`.
        """
        # Firmware numbers the buses in the order of the ports; nothing else has a bus.
        prefix = f"0000:{port + 1:02x}:"
        found = (each for each in self.agent.functions() if each["address"].startswith(prefix))
        return next(found, None)

    def bind(self, port: int, driver: str) -> None:
        """Bind the device behind a root port to a driver that is loaded in the guest.

        Raises `LabError`.
        """
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
            time.sleep(PAUSE)

    # Use.

    def run(
        self,
        command: str | Sequence[str],
        timeout: float | None = 60.0,
        check: bool = True,
        **more: Any,
    ) -> Completed:
        """Run a shell line, or a list of words, in the guest; arguments as for `Agent.run`.

        Raises `CommandFailed` when `check` and the status is not 0, `CommandTimedOut`, or the
        `LabError` of the guest; each names the console's transcript and carries everything that the
        command printed.
        """
        self.touched = True
        try:
            return self.agent.run(command, timeout, check=check, **more)
        except LabError as error:
            if str(self.transcript) not in str(error):
                error.mend = "; ".join(filter(None, (error.mend, f"console: {self.transcript}")))
                error.args = (f"{error.what}; {error.mend}",)
            raise error from None

    @property
    def console(self) -> Console:
        """The serial console, connected at the first use."""
        from bluebridge.host_tools.machine import console

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
        """The connection to the agent, made at the first use; its waits end with the alarms."""
        self.touched = True
        if self._agent is None:
            self.wait_for_agent()
        assert self._agent is not None
        return self._agent

    def forget_agent(self) -> None:
        """Close the connection to the agent; the next use of `agent` makes a new one."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _alarm(self) -> LabError | None:
        """Return the trouble of this guest, or of whatever else is watched; None without any."""
        watched = (*self.causes, self.trouble, self._kernel.trouble, *self.alarms)
        return processes.first(watched)

    @property
    def qmp(self) -> Qmp:
        """The QMP connection to QEMU, which must be running."""
        self.touched = True
        assert self._qmp is not None, "the guest is not running"
        return self._qmp
