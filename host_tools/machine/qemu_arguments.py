"""QEMU's arguments for every guest, the same for a cold boot and for a restore.

A restored guest only fits a machine with the same parts at the same places, so devices under test
are never part of it: they are plugged into root ports that are always there, or, for a cold boot,
put on the command line behind the same ports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bluebridge.guest.agent import PORT
from bluebridge.host_tools.machine.confinement import SECCOMP

MESSAGE_TIMEOUT_MS = 60_000  # a busy host must not turn a late answer into all-ones for the guest
AGENT_PORTS = 4
ROOT_PORTS = 6
"""The number of root ports: for an HCA, a bridge and two DMA engines, with two more to spare."""
WIDE_PORT = ROOT_PORTS - 1
"""The root port with a window for a BAR of several GiB."""
HCA_WINDOW = "64M"
"""The size of the prefetchable memory window behind every root port but `WIDE_PORT`."""


_NETDEV = "wire"

EMULATED_CPU = "max,-erms,-fsrm"
"""The CPU model under TCG, without the flags by which `rep movsb` counts as fast.

With them kernel and C library would copy by it, and the emulator then moves one byte at a time, at
a third of the speed of other copies.
"""


@dataclass(frozen=True)
class Emulator:
    """The QEMU of this machine: its command, environment and accelerator."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    accelerator: str
    """The accelerator's name, `kvm` or `tcg`."""
    identity: str = ""
    """A text that differs between any two builds of QEMU."""
    seccomp: bool = False
    """Whether it filters its own system calls (`-sandbox`)."""


@dataclass(frozen=True)
class Boot:
    """The files and the command line that a guest starts from at power-on."""

    kernel: Path
    initrd: Path
    words: str
    """The kernel's command line."""

    def files(self) -> tuple[Path | None, ...]:
        """Return the files that QEMU reads."""
        return self.kernel, self.initrd


@dataclass(frozen=True)
class NetworkBoot:
    """A start at power-on from firmware that fetches the rest over a device of the guest."""

    firmware: Path
    """The path of a firmware image that QEMU starts like a kernel."""
    device_ids: Mapping[int, int]
    """The PCI device ids, by root port, that the guest sees instead of the devices' own."""
    script: Path | None = None
    """The file of commands for the firmware; without it, the firmware runs its built-in ones."""

    def files(self) -> tuple[Path | None, ...]:
        """Return the files that QEMU reads."""
        return self.firmware, self.script


@dataclass(frozen=True)
class Nic:
    """A virtio NIC whose frames go over a UNIX stream, as fields of QMP commands."""

    socket: Path
    mac: str

    def backend(self) -> dict[str, Any]:
        """Return the fields of `netdev_add`; QEMU connects again after the server was away."""
        address = {"type": "unix", "path": str(self.socket)}
        return {
            "type": "stream",
            "id": _NETDEV,
            "server": False,
            "addr": address,
            "reconnect-ms": 1000,
        }

    def device(self, port: int) -> dict[str, Any]:
        """Return the fields of `device_add` for a NIC behind root port `port`."""
        place = {"id": device_name(port), "bus": f"port{port}"}
        return {"driver": "virtio-net-pci", "netdev": _NETDEV, "mac": self.mac, **place}


@dataclass(frozen=True)
class GuestSize:
    """Processors and memory of a guest; everything else is the same for all guests."""

    cpus: int = 2
    memory_mib: int = 1024
    hugepages: int = 64
    """The number of 2 MiB pages set aside for DMA memory of the user-space driver."""

    def arguments(self, name: str, emulator: Emulator, folder: Path, transcript: Path) -> list[str]:
        """Return QEMU's arguments without those of the start; the sockets are in `folder`."""
        cpu = "host" if emulator.accelerator == "kvm" else EMULATED_CPU
        argv = [*emulator.argv, "-nodefaults", "-no-reboot", "-display", "none", "-S"]
        argv += ["-name", f"bluebridge-{name}"]
        argv += ["-sandbox", SECCOMP] if emulator.seccomp else []
        # Linux leaves the HPET counting once it times by the APIC; that wakes QEMU at every tick.
        machine = f"q35,accel={emulator.accelerator},memory-backend=ram,hpet=off"
        argv += ["-machine", machine]
        argv += ["-cpu", cpu, "-smp", str(self.cpus), "-m", f"{self.memory_mib}M"]
        # The device server maps guest memory: a shared file without a name that cannot shrink.
        memory = f"memory-backend-memfd,id=ram,size={self.memory_mib}M,share=on,seal=on"
        argv += ["-object", memory]
        log = f",logfile={_escape(transcript)},logappend=on"
        argv += _socket(folder, name, "console", log)
        argv += ["-serial", "chardev:console"]
        # The agent writes the kernel's errors there (guest/agent/__main__.py).
        argv += ["-chardev", f"file,id=errors,path={_escape(transcript)},append=on"]
        argv += ["-serial", "chardev:errors"]
        argv += _socket(folder, name, "qmp", "")
        argv += ["-mon", "chardev=qmp,mode=control"]
        argv += _agent_ports(folder, name)
        for number in range(ROOT_PORTS):
            argv += _root_port(number)
        return argv


def start_arguments(boot: Boot | NetworkBoot) -> list[str]:
    """Return QEMU's arguments for a start at power-on."""
    if isinstance(boot, NetworkBoot):
        return _firmware_arguments(boot)
    kernel = ["-kernel", str(boot.kernel), "-initrd", str(boot.initrd)]
    return [*kernel, "-append", boot.words]


def _firmware_arguments(boot: NetworkBoot) -> list[str]:
    """With `graphics=off` SeaBIOS shows on the serial port what programs print through the BIOS.

    All windows are small, so that it assigns addresses below 4 GiB: iPXE's programs for a BIOS
    have 32-bit pointers, and `pci.c: pci_bar_start` gives them 0 for a BAR above.
    """
    argv = ["-machine", "graphics=off"]
    argv += ["-set", f"device.port{WIDE_PORT}.pref64-reserve={HCA_WINDOW}"]
    argv += ["-kernel", str(boot.firmware)]
    return [*argv, "-initrd", str(boot.script)] if boot.script is not None else argv


def command_line(name: str, size: GuestSize, vfio: bool, quiet: bool = True) -> str:
    """Return the command line of the guest's kernel.

    `quiet` keeps everything below an error off the console that the commands share; without it,
    the console tells how far a kernel comes that nobody has tried yet. A panic ends QEMU at once
    (with -no-reboot) after its text was printed.
    """
    words = [
        "console=ttyS0",
        *(["quiet"] if quiet else ["earlyprintk=ttyS0"]),
        "panic=1",
        "oops=panic",
    ]
    words += [f"bluebridge.host={name}"]
    words += ["sysctl.kernel.hung_task_panic=1"]  # the console shows emergencies only
    words += ["tsc=reliable"]  # without a HPET Linux would otherwise time by slow port accesses
    # A busy host lets ticks pass that Linux counts to see whether its timer works, and panics over
    # (io_apic.c: check_timer).
    words += ["no_timer_check"]
    words += [f"hugepages={size.hugepages}", f"bluebridge.vfio={int(vfio)}"]
    return " ".join(words)


def agent_sockets(folder: Path, name: str) -> list[Path]:
    """Return the sockets on which the ports of the agent of guest `name` listen."""
    return [folder / f"agent{number}-{name}.sock" for number in range(AGENT_PORTS)]


def sockets(folder: Path, name: str) -> list[Path]:
    """Return the sockets that the QEMU of guest `name` listens on."""
    others = [folder / f"{what}-{name}.sock" for what in ("console", "qmp")]
    return [*others, *agent_sockets(folder, name)]


def vfio_user(port: int, socket: Path) -> dict[str, Any]:
    """Return the fields, for `device_add` and `-device`, of the vfio-user device at `socket`."""
    return {
        "driver": "vfio-user-pci",
        "id": device_name(port),
        "bus": f"port{port}",
        "socket": {"path": str(socket), "type": "unix"},
        "x-msg-timeout": MESSAGE_TIMEOUT_MS,
    }


def device_arguments(port: int, socket: Path, device_id: int | None = None) -> list[str]:
    """Return the command-line arguments for the device of `vfio_user`.

    The guest sees `device_id` as its PCI device id, if that is given.
    """
    identity = {} if device_id is None else {"x-pci-device-id": device_id}
    return ["-device", json.dumps(vfio_user(port, socket) | identity)]


def device_name(port: int) -> str:
    """Return QEMU's name of the device behind root port `port`."""
    return f"device{port}"


def _root_port(number: int) -> list[str]:
    """Return the arguments of a root port, its windows as large as any device needs.

    Firmware assigns the windows once.
    """
    # 1 MiB of registers and 16 MiB of UAR and BlueFlame pages, aligned to their size; a memory
    # window of the bridge may have 4 GiB.
    prefetchable = "16G" if number == WIDE_PORT else HCA_WINDOW
    words = f"id=port{number},chassis={number + 1},slot={number + 1},addr={number + 1:x}"
    reserve = f"pref64-reserve={prefetchable},mem-reserve=16M"
    return ["-device", f"pcie-root-port,{words},{reserve}"]


def _escape(path: Path) -> str:
    """Return a path as text for a comma-separated option."""
    return str(path).replace(",", ",,")


def _socket(folder: Path, name: str, what: str, more: str) -> list[str]:
    path = _escape(folder / f"{what}-{name}.sock")
    return ["-chardev", f"socket,id={what},path={path},server=on,wait=off{more}"]


def _agent_ports(folder: Path, name: str) -> list[str]:
    """Return the arguments of the agent's ports.

    There are several, since QEMU serves one client per port and tools may run side by side.
    """
    argv = ["-device", "virtio-serial-pci,id=agent,addr=1e"]
    for number, path in enumerate(agent_sockets(folder, name)):
        port = PORT if number == 0 else f"{PORT}.{number}"
        argv += _socket(folder, name, path.name.removesuffix(f"-{name}.sock"), "")
        argv += ["-device", f"virtserialport,bus=agent.0,chardev=agent{number},name={port}"]
    return argv
