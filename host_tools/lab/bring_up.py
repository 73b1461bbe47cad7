"""Guests of a pair started side by side: restored from a snapshot or booted, with their devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.lab import network_boot, root_ports
from bluebridge.host_tools.lab.artefacts import LabArtefacts
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.device_server import DeviceServer
from bluebridge.host_tools.lab.guest_drivers import GuestDrivers, RunTogether
from bluebridge.host_tools.machine.qemu_arguments import Boot, NetworkBoot
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images.cache import Snapshot

_DRIVER = "vfio-pci"
_RESTORE_SECONDS = 60.0
_NETWORK_SECONDS = 300.0


@dataclass
class BringUp:
    """Starts the guests of a pair, the first time and again; for the main thread only."""

    config: LabConfig
    artefacts: LabArtefacts
    folder: Path
    """The folder for initrds."""
    server: DeviceServer
    drivers: GuestDrivers
    snapshot: Snapshot | None
    together: RunTogether
    progress: Progress
    detail: Progress
    warnings: list[str]
    """Gets a line when `snapshot` cannot be restored."""

    def __post_init__(self) -> None:
        self._server_lock = threading.Lock()
        self._server_ready = False
        self._engines = threading.Barrier(len(self.config.guests))

    @property
    def restores(self) -> bool:
        """Whether guests are restored rather than booted."""
        return self.snapshot is not None

    def bring_up(self, machines: Sequence[Vm]) -> None:
        """Start `machines` all at once, from the snapshot if there is one. Raises `LabError`."""
        everyone = machines
        if self.snapshot is not None and (failed := self._restore(machines, self.snapshot)):
            self._discard_snapshot(self.snapshot, failed[0][1])
            machines = [machine for machine, _ in failed]
        if self.snapshot is None:
            self._boot(machines)
        self.drivers.load_bridges(everyone)

    def _spawn(self, machine: Vm, boot: Boot | None) -> None:
        machine.power_on(boot)
        self.detail(f"guest {machine.name}: QEMU started (process {machine.pid})")

    # From a snapshot.

    def _restore(self, machines: Sequence[Vm], found: Snapshot) -> list[tuple[Vm, LabError]]:
        """Restore `machines`; returns those that could not be, and why."""
        for machine in machines:
            self._spawn(machine, None)
        self.progress("restoring guests" if len(machines) > 1 else "restoring the guest")
        failed: list[tuple[Vm, LabError]] = []

        def restore(machine: Vm) -> None:
            try:
                self._load(machine, found)
            except LabError as error:
                if machine.was_killed() or self.server.trouble():
                    raise
                machine.stop()
                failed.append((machine, error))
            else:
                machine.personalise()
                self.detail(f"guest {machine.name}: has a name and randomness of its own")
                self._plug_devices(machine)

        self.together(*(partial(restore, machine) for machine in machines))
        return failed

    def _load(self, machine: Vm, found: Snapshot) -> None:
        machine.attach()
        self.detail(f"guest {machine.name}: loading the snapshot")
        machine.load(found.state)
        self.detail(f"guest {machine.name}: runs")
        machine.wait_for_agent(_RESTORE_SECONDS)
        self.detail(f"guest {machine.name}: its agent answers")

    def _discard_snapshot(self, found: Snapshot, why: LabError) -> None:
        done = "was thrown away" if found.discard() else "cannot be removed"
        line = f"the snapshot did not restore and {done}, cold boot ({why.what})"
        self.snapshot = None
        self.warnings.append(line)
        self.progress(line)

    def _plug_devices(self, machine: Vm) -> None:
        """Plug in the guest's devices as soon as the server is there."""
        for port, path in machine.config.sockets.items():
            self._wait_for_server()
            if port == root_ports.BRIDGE and self.config.window_alias:
                self._wait_for_engines(machine)
            self.detail(f"guest {machine.name}: plugging in its device")
            machine.plug(port, path)
            self.detail(f"guest {machine.name}: lists its device")
            if self.config.binds(machine.name):
                machine.bind(port, _DRIVER)
                self.detail(f"guest {machine.name}: {_DRIVER} has its device")
        self._load_drivers(machine)

    def _load_drivers(self, machine: Vm) -> None:
        """Plug in the guest's virtio NIC, if it has one, and load the drivers of its devices."""
        if machine.config.nic is not None:
            self._wait_for_server()
            machine.plug_nic(root_ports.NIC, machine.config.nic)
            self.detail(f"guest {machine.name}: lists its NIC")
        self.drivers.load(machine)
        machine.touched = False

    def _wait_for_engines(self, machine: Vm) -> None:
        """Wait until both guests have their DMA engines.

        A bridge maps its peer's memory when it is plugged in, and it learns of that memory from the
        engines. Raises `LabError`.
        """
        try:
            self._engines.wait(_RESTORE_SECONDS)
        except threading.BrokenBarrierError:
            raise LabError(f"guest {machine.name}: its peer has not got its DMA engine") from None

    def _wait_for_server(self) -> None:
        with self._server_lock:
            if not self._server_ready:
                self.server.wait()
                self._server_ready = True
                self.detail("device server: ready")

    # From power-on, over the network.

    def boot_over_network(self, machine: Vm, boot: NetworkBoot) -> float:
        """Boot `machine` by its firmware; return the seconds until its agent answered.

        The time begins at power-on. Raises `LabError`.
        """
        machine.power_on(boot)
        machine.attach()
        self.progress(f"guest {machine.name}: iPXE boots it over its HCA")
        with network_boot.watched(machine):
            begin = time.monotonic()
            machine.release()
            machine.wait_for_agent(_NETWORK_SECONDS)
            seconds = time.monotonic() - begin
        self.detail(f"guest {machine.name}: its agent answers after {seconds:.1f} s")
        self.drivers.load(machine)
        machine.touched = False
        return seconds

    # From power-on.

    def _boot(self, machines: Sequence[Vm]) -> None:
        """Boot `machines` from power-on, their devices in place."""
        if self.config.window_alias:
            raise LabError(
                "a window that is the peer's memory wants guests restored from a snapshot",
                "leave out --window-alias, or see why the snapshot does not restore",
            )
        if self.config.serves:
            self._wait_for_server()
        for machine in machines:
            size, binds = self.config.size, self.config.binds(machine.name)
            self._spawn(machine, self.artefacts.boot(self.folder, machine.name, size, binds))
        self.progress("booting guests")
        self.together(*(partial(self._finish_boot, machine) for machine in machines))

    def _finish_boot(self, machine: Vm) -> None:
        machine.attach()
        machine.release()
        self.detail(f"guest {machine.name}: booting")
        machine.wait_for_boot(self.artefacts.usual, self.artefacts.checked)
        self.detail(f"guest {machine.name}: its agent answers")
        binds = self.config.binds(machine.name)
        for port in machine.config.sockets:
            if binds and port not in root_ports.HCAS:  # the guest's init binds HCAs
                machine.bind(port, _DRIVER)
        self._load_drivers(machine)
