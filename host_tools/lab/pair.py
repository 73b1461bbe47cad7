"""The pair: one device server, two guests with an HCA each, and nothing left of them afterwards."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab import (
    folders,
    hardware_control,
    ntb_drivers,
    root_ports,
    roots,
    snapshot,
)
from bluebridge.host_tools.lab.artefacts import ensure_parts, ntb_modules
from bluebridge.host_tools.lab.config import ADDRESSES, NAMES, NTB_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.device_server import DeviceServer, ServerConfig
from bluebridge.host_tools.machine.machine import Boot
from bluebridge.host_tools.machine.vm import Vm, VmConfig
from bluebridge.host_tools.processes.side_by_side import Together
from bluebridge.host_tools.processes.termination import termination_as_exception
from bluebridge.host_tools.progress import Progress, Reporter
from bluebridge.images.snapshot import Snapshot

__all__ = ["ADDRESSES", "NAMES", "LabConfig", "Pair", "termination_as_exception"]

_DRIVER = "vfio-pci"
_KERNEL_SECONDS = 180.0
_RESTORE_SECONDS = 60.0


class Pair:
    """Context manager: two guests that are up, `pair.a` and `pair.b`, with an HCA each."""

    def __init__(
        self,
        config: LabConfig | None = None,
        progress: Progress | None = None,
        detail: Progress | None = None,
    ) -> None:
        """Nothing starts before `with`. `detail` is told each step, `progress` the large ones."""
        self.config = config or LabConfig()
        self._progress = progress or Reporter(quiet=True)
        self._detail = detail or Reporter(quiet=True)
        self._stack = contextlib.ExitStack()
        self._threads = Together()
        self.log_name = ""
        """Folder of bus log and transcripts as text; empty while there is none."""
        self.warnings: list[str] = []
        """What the user should know although everything works."""
        self.machines: list[Vm] = []
        self._server_lock = threading.Lock()
        self._server_ready = False
        self._engines = threading.Barrier(len(self.config.names))

    def __repr__(self) -> str:
        return f"<pair of guests {' and '.join(self.config.names)}>"

    def __enter__(self) -> Pair:
        """Start everything; on failure everything already started is ended again."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(termination_as_exception())
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End guests, then the server, then remove the run folder."""
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._parts = ensure_parts(self._progress)
        self.library = self._parts.library
        self.accelerator = self._parts.emulator.accelerator
        if self.config.ntb:
            self._ntb_modules = ntb_modules(self._progress)
        self._snapshot = self._find_snapshot()
        self.logs = folders.log_folder(self.config.log)
        stack.callback(os.close, folders.keep_logs(self.logs))
        self.log_name = str(self.logs)
        self.folder = stack.enter_context(folders.run_folder())
        self.server = DeviceServer(self._server_config(), self.logs)
        if self.config.serves:
            stack.callback(self.server.stop)
            self.server.spawn()
            self._detail(f"device server: started (process {self.server.pid})")
        for name in self.config.names:
            self.machines.append(machine := self._machine(name))
            stack.callback(machine.stop)
        self._bring_up(self.machines)
        how = "restored" if self._snapshot else "booted"
        self._progress(
            f"guests {' and '.join(self.config.names)} are up ({how}, {self.accelerator})"
        )

    def _find_snapshot(self) -> Snapshot | None:
        if self.config.cold:
            return None
        return snapshot.ensure(self._parts, self.config.machine, self._progress)

    def _server_config(self) -> ServerConfig:
        folder = self.config.sockets or self.folder
        self.sockets = {
            name: root_ports.sockets(self.config, folder, name) for name in self.config.names
        }
        self.hca_sockets = {
            name: ports[root_ports.HCA]
            for name, ports in self.sockets.items()
            if root_ports.HCA in ports
        }
        _check_sockets(path for ports in self.sockets.values() for path in ports.values())
        log = self.logs / "bus" if self.config.bus_log else None
        return ServerConfig(
            self.hca_sockets,
            log,
            self._parts.library,
            self.config.options,
            (*root_ports.arguments(self.config, self.sockets), *self.config.server_words),
            self.folder / hardware_control.SOCKET,
            self.config.number,
        )

    def _machine(self, name: str) -> Vm:
        vm = Vm(
            VmConfig(name, self.config.machine, self.sockets[name]),
            self._parts.emulator,
            self.folder,
            self.logs,
        )
        vm.causes.append(self.server.trouble)
        vm.alarms.append(self._threads.trouble)
        return vm

    # Bringing guests up.

    def _bring_up(self, machines: Sequence[Vm]) -> None:
        """Start `machines`, all at once; main thread only."""
        everyone = machines
        if self._snapshot is not None and (failed := self._restore(machines, self._snapshot)):
            self._give_up_snapshot(failed)
            machines = [machine for machine, _ in failed]
        if self._snapshot is None:
            self._boot(machines)
        self._load_bridge_drivers(everyone)

    def _restore(self, machines: Sequence[Vm], found: Snapshot) -> list[tuple[Vm, LabError]]:
        """Restore `machines`; returns those whose snapshot was no good, and why."""
        for machine in machines:
            self._spawn(machine, None)
        self._progress("restoring guests" if len(machines) > 1 else "restoring the guest")
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
                self._detail(f"guest {machine.name}: has a name and randomness of its own")
                self._equip(machine)

        self.together(*(partial(restore, machine) for machine in machines))
        return failed

    def _load(self, machine: Vm, found: Snapshot) -> None:
        machine.attach()
        self._detail(f"guest {machine.name}: loading the snapshot")
        machine.load(found.state)
        self._detail(f"guest {machine.name}: runs")
        machine.wait_for_agent(_RESTORE_SECONDS)
        self._detail(f"guest {machine.name}: its agent answers")

    def _spawn(self, machine: Vm, boot: Boot | None) -> None:
        machine.power_on(boot)
        self._detail(f"guest {machine.name}: QEMU started (process {machine.pid})")

    def _give_up_snapshot(self, failed: Sequence[tuple[Vm, LabError]]) -> None:
        assert self._snapshot is not None
        fate = "was thrown away" if self._snapshot.discard() else "cannot be removed"
        line = f"the snapshot did not restore and {fate}, cold boot ({failed[0][1].what})"
        self._snapshot = None
        self.warnings.append(line)
        self._progress(line)

    def _equip(self, machine: Vm) -> None:
        """Plug in the guest's devices as soon as the server is there."""
        for port, path in machine.config.sockets.items():
            self._wait_for_server()
            if port == root_ports.BRIDGE and self.config.window_alias:
                self._wait_for_engines(machine)
            self._detail(f"guest {machine.name}: plugging in its device")
            machine.plug(port, path)
            self._detail(f"guest {machine.name}: lists its device")
            if self.config.binds:
                machine.bind(port, _DRIVER)
                self._detail(f"guest {machine.name}: {_DRIVER} has its device")
        self._load_kernel_drivers(machine)
        machine.touched = False

    def _load_kernel_drivers(self, machine: Vm) -> None:
        if self.config.kernel and self.config.hca:
            address = ADDRESSES[self.config.names.index(machine.name)]
            self._progress(f"guest {machine.name}: loading the kernel's drivers")
            machine.run(["bluebridge-mlx4", address], timeout=_KERNEL_SECONDS)
            self._detail(f"guest {machine.name}: mlx4 has its device, address {address}")
        if self.config.ntb:
            ntb_drivers.install(machine, self._ntb_modules)
            self._detail(f"guest {machine.name}: has the NTB modules")

    def probe_bridges(self, machines: Sequence[Vm] | None = None) -> None:
        """Load the drivers of bridge and engine, in both guests if it is not said in which.

        They are ready for clients then. Raises `LabError`.
        """
        machines = self.machines if machines is None else machines
        self.together(*(partial(ntb_drivers.probe, each, self.config.ntb) for each in machines))
        self.together(*(partial(ntb_drivers.settle, each) for each in machines))

    def _load_bridge_drivers(self, machines: Sequence[Vm]) -> None:
        """Step by step: each side's bridge first, then what brings the link up."""
        if not (self.config.ntb and self.config.kernel):
            return
        self._progress("loading the NTB drivers")
        self.probe_bridges(machines)
        self.together(
            *(
                partial(ntb_drivers.load, each, NTB_ADDRESSES[self.config.names.index(each.name)])
                for each in machines
            )
        )
        for machine in machines:
            self._detail(f"guest {machine.name}: the NTB link is up")
            machine.touched = False

    def _wait_for_engines(self, machine: Vm) -> None:
        """A bridge maps its peer's memory when it comes, and engines tell of that memory."""
        try:
            self._engines.wait(_RESTORE_SECONDS)
        except threading.BrokenBarrierError:
            raise LabError(f"guest {machine.name}: its peer has not got its DMA engine") from None

    def _wait_for_server(self) -> None:
        with self._server_lock:
            if not self._server_ready:
                self.server.wait()
                self._server_ready = True
                self._detail("device server: ready")

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
            boot = self._parts.boot(
                self.folder, machine.name, self.config.machine, self.config.binds
            )
            self._spawn(machine, boot)
        self._progress("booting guests")

        def up(machine: Vm) -> None:
            machine.attach()
            machine.release()
            self._detail(f"guest {machine.name}: booting")
            machine.wait_for_agent()
            self._detail(f"guest {machine.name}: its agent answers")
            for port in machine.config.sockets:
                if (
                    self.config.binds and port != root_ports.HCA
                ):  # that one the guest's init has bound
                    machine.bind(port, _DRIVER)
            self._load_kernel_drivers(machine)
            machine.touched = False

        self.together(*(partial(up, machine) for machine in machines))

    def restart(self, name: str) -> None:
        """Switch guest `name` off and bring it up anew, at the same device server.

        Its devices come back as after a reset; its peer goes on. Main thread only.
        """
        machine = self.machine(name)
        if self.config.window_alias:
            raise UsageError("a guest whose memory is its peer's window cannot be restarted alone")
        machine.stop()
        self._bring_up([machine])

    def machine(self, name: str) -> Vm:
        """The guest of that name. Raises `UsageError`."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise UsageError(f"there is no guest {name}", f"there are {', '.join(self.config.names)}")

    @property
    def a(self) -> Vm:
        """The first guest, which plays the server."""
        return self.machines[0]

    @property
    def b(self) -> Vm:
        """The second guest, which plays the client."""
        return self.machines[1]

    def both(self, action: Callable[[Vm], None]) -> None:
        """Do something on both consoles at once; the first failure ends the other's wait too."""
        self.together(*(lambda machine=machine: action(machine) for machine in self.machines))

    def together(self, *actions: Callable[[], None]) -> None:
        """Run `actions` side by side. Raises the first failure, or what caused it.

        An action waits on a guest, so it ends soon after another one has failed: every guest has
        this pair's trouble among its alarms. After a failure the pair is only good for ending.
        """
        try:
            self._threads.run(actions)
        except Exception as error:
            # A dead server makes guests complain about other things.
            raise self.server.trouble() or error from None


def _check_sockets(paths: Iterable[Path]) -> None:
    """Raises `LabError` when the device server could not make them."""
    for path in paths:
        roots.check_socket_path(path)
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent} for sockets", "make it first")
