"""One guest: a QEMU process with its control socket, its console and its vfio-user devices."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from guest.agent import PORT
from host_tools import console, process
from host_tools.agent import Agent
from host_tools.console import Console
from host_tools.errors import LabError
from host_tools.qmp import Qmp, QmpError

_T = TypeVar("_T")
_MESSAGE_TIMEOUT_MS = 60_000  # a busy host must not turn a late answer into all-ones for the guest
_START_SECONDS = 60.0
_AGENT_PORTS = 4


@dataclass(frozen=True)
class Emulator:
    """How QEMU is called on this machine."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    accelerator: str
    """`kvm` or `tcg`."""


@dataclass(frozen=True)
class VmConfig:
    """What a guest consists of."""

    name: str
    kernel: Path
    initrd: Path
    sockets: tuple[Path, ...] = ()
    """vfio-user sockets of its devices, in the order of their root ports."""
    cpus: int = 2
    memory_mib: int = 1024
    hugepages: int = 64
    """2 MiB pages set aside for DMA memory of the user-space driver."""
    vfio: bool = True
    """Bind the HCA to vfio-pci at boot; without it the device is left alone."""

    def command_line(self) -> str:
        """The kernel's command line.

        `quiet` keeps everything below an error off the console that the commands share; a panic
        ends QEMU at once (with -no-reboot) after its text was printed.
        """
        words = ["console=ttyS0", "quiet", "panic=1", "oops=panic", f"bluebridge.host={self.name}"]
        words += ["sysctl.kernel.hung_task_panic=1"]  # the console shows emergencies only
        words += [f"hugepages={self.hugepages}", f"bluebridge.vfio={int(self.vfio)}"]
        return " ".join(words)


def arguments(config: VmConfig, emulator: Emulator, folder: Path, transcript: Path) -> list[str]:
    """QEMU's whole command line; console and control sockets stand in `folder`."""
    cpu = "host" if emulator.accelerator == "kvm" else "max"
    argv = [*emulator.argv, "-nodefaults", "-no-reboot", "-display", "none", "-S"]
    argv += ["-name", f"bluebridge-{config.name}"]
    argv += ["-machine", f"q35,accel={emulator.accelerator},memory-backend=ram"]
    argv += ["-cpu", cpu, "-smp", str(config.cpus), "-m", f"{config.memory_mib}M"]
    # The device server maps guest memory, so it must be a shared file without a name.
    argv += ["-object", f"memory-backend-memfd,id=ram,size={config.memory_mib}M,share=on"]
    argv += ["-kernel", str(config.kernel), "-initrd", str(config.initrd)]
    argv += ["-append", config.command_line()]
    argv += _socket(folder, config.name, "console", f",logfile={_escape(transcript)}")
    argv += ["-serial", "chardev:console"]
    argv += _socket(folder, config.name, "qmp", "")
    argv += ["-mon", "chardev=qmp,mode=control"]
    argv += _agent_ports(folder, config.name)
    for number, path in enumerate(config.sockets):
        argv += _vfio_user(number, path)
    return argv


def _escape(path: Path) -> str:
    """A path inside a comma-separated option."""
    return str(path).replace(",", ",,")


def _socket(folder: Path, name: str, what: str, more: str) -> list[str]:
    path = _escape(folder / f"{what}-{name}.sock")
    return ["-chardev", f"socket,id={what},path={path},server=on,wait=off{more}"]


def _agent_ports(folder: Path, name: str) -> list[str]:
    """Several ports, since QEMU serves one client per port and tools may run side by side."""
    # Far from the root ports, which get their numbers in the order they are made.
    argv = ["-device", "virtio-serial-pci,id=agent,addr=1e"]
    for number, path in enumerate(agent_sockets(folder, name)):
        port = PORT if number == 0 else f"{PORT}.{number}"
        argv += _socket(folder, name, path.name.removesuffix(f"-{name}.sock"), "")
        argv += ["-device", f"virtserialport,bus=agent.0,chardev=agent{number},name={port}"]
    return argv


def agent_sockets(folder: Path, name: str) -> list[Path]:
    """Where the ports of the agent of guest `name` listen."""
    return [folder / f"agent{number}-{name}.sock" for number in range(_AGENT_PORTS)]


def _vfio_user(number: int, path: Path) -> list[str]:
    """A root port and the device behind it; ports have room for an 8 MiB prefetchable BAR."""
    port = f"port{number}"
    device = {
        "driver": "vfio-user-pci",
        "id": f"hca{number}",
        "bus": port,
        "socket": {"path": str(path), "type": "unix"},
        "x-msg-timeout": _MESSAGE_TIMEOUT_MS,
    }
    reserve = "pref64-reserve=64M,mem-reserve=16M"
    root_port = f"pcie-root-port,id={port},chassis={number + 1},slot={number + 1},{reserve}"
    return ["-device", root_port, "-device", json.dumps(device)]


class Vm:
    """A running guest. Made by `start`, ended by `stop`; both are idempotent where it matters."""

    def __init__(self, config: VmConfig, emulator: Emulator, folder: Path, logs: Path) -> None:
        """Sockets go to `folder`, the transcript and QEMU's messages to `logs`."""
        self.config = config
        self.name = config.name
        self.transcript = logs / f"console-{config.name}.log"
        self.console_socket = folder / f"console-{config.name}.sock"
        self.agent_sockets = agent_sockets(folder, config.name)
        self._qmp_socket = folder / f"qmp-{config.name}.sock"
        self._messages = logs / f"qemu-{config.name}.log"
        self._argv = arguments(config, emulator, folder, self.transcript)
        self._env = emulator.env
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None
        self._console: Console | None = None
        self._agent: Agent | None = None

    def spawn(self) -> None:
        """Start QEMU with its CPUs halted. Main thread only (see `process.spawn`)."""
        with self._messages.open("wb") as messages:
            self._process = process.spawn(
                self._argv, env=self._env, stdout=messages, stderr=messages
            )

    def release(self) -> None:
        """Attach to control socket and console, then let the CPUs run."""
        self._qmp = self._attach(lambda: Qmp.connect(self._qmp_socket))
        self._console = self._attach(
            lambda: console.connect(self.name, self.console_socket, self.transcript)
        )
        self._qmp.command("cont")

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
                time.sleep(0.01)  # there is nothing to wait on before the socket exists
            except QmpError as error:
                raise self._obituary() or error from None

    def _obituary(self, patience: float = 2.0) -> LabError | None:
        """Why QEMU hung up, once its process is gone."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self.trouble()

    @property
    def console(self) -> Console:
        """The console; the guest must have been released."""
        assert self._console is not None, "the guest is not running"
        return self._console

    @property
    def agent(self) -> Agent:
        """The agent, connected to at the first use; its waits end with the console's alarms."""
        if self._agent is None:
            self._agent = Agent.connect(self.name, self.agent_sockets, alarms=[self._alarm])
        return self._agent

    def forget_agent(self) -> None:
        """Hang up; the next use of `agent` connects anew, as it must after a lost connection."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _alarm(self) -> LabError | None:
        """What is wrong with QEMU, or with whatever else the console watches."""
        alarms = [self.trouble, *(self._console.alarms if self._console else ())]
        return next((found for alarm in alarms if (found := alarm()) is not None), None)

    @property
    def qmp(self) -> Qmp:
        """The control socket; the guest must have been released."""
        assert self._qmp is not None, "the guest is not running"
        return self._qmp

    @property
    def pid(self) -> int:
        """The process id of QEMU."""
        assert self._process is not None, "the guest is not running"
        return self._process.pid

    def trouble(self) -> LabError | None:
        """What is wrong with QEMU itself, or None while it runs."""
        if self._process is None or self._process.poll() is None:
            return None
        said = self.messages()
        last = said.splitlines()[-1] if said.strip() else "it said nothing"
        status = self._process.returncode
        return LabError(
            f"guest {self.name}: QEMU ended with status {status}: {last}",
            f"read {self._messages}",
            said,
        )

    def messages(self) -> str:
        """What QEMU printed."""
        return self._messages.read_text(errors="replace") if self._messages.exists() else ""

    def stop(self) -> None:
        """End QEMU without ceremony: its disks are memory, there is nothing to flush."""
        self.forget_agent()
        if self._console is not None:
            self._console.close()
        if self._qmp is not None:
            self._qmp.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def boot(machines: Sequence[Vm]) -> None:
    """Start all guests at once; they then boot side by side."""
    for machine in machines:
        machine.spawn()
    for machine in machines:
        machine.release()
