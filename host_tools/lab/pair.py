"""A pair: one device server and two sides, guests or programs of this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bluebridge.device.server.options import BRIDGE_DEFAULTS
from bluebridge.device.server.settings import HcaSpec, ServerSettings
from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import Progress, Reporter, UsageError, listed
from bluebridge.host_tools.hosts.host import Host
from bluebridge.host_tools.lab import (
    folders,
    hardware,
    log_stopper,
    network_boot,
    root_ports,
    roots,
    snapshot,
)
from bluebridge.host_tools.lab.artefacts import (
    card_archives,
    device_library,
    ensure_artefacts,
    network_boot_files,
    ntb_modules,
    rtrs_modules,
)
from bluebridge.host_tools.lab.bring_up import BringUp
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.device_server import DeviceServer
from bluebridge.host_tools.lab.guest_drivers import GuestDrivers
from bluebridge.host_tools.lab.hardware import Hardware
from bluebridge.host_tools.machine.qemu_arguments import NetworkBoot, Nic
from bluebridge.host_tools.machine.vm import Vm, VmConfig
from bluebridge.host_tools.processes import SideBySide, termination_as_exception
from bluebridge.images.cache import Snapshot

if TYPE_CHECKING:  # as in `machine.vm`
    from bluebridge.host_tools.machine.console import Console


class Pair:
    """A context manager for two running guests, `pair.a` and `pair.b`, usually with an HCA each."""

    def __init__(
        self,
        config: LabConfig | None = None,
        progress: Progress | None = None,
        detail: Progress | None = None,
    ) -> None:
        """Prepare a pair; `with` starts it. Raises `UsageError` for settings that cannot be.

        `detail` is told each step, `progress` the large ones.
        """
        self.config = (config or LabConfig()).of_wire()
        self.config.check_hosts()
        self._progress = progress or Reporter(quiet=True)
        self._detail = detail or Reporter(quiet=True)
        self._stack = contextlib.ExitStack()
        self._threads = SideBySide()
        self.log_name = ""
        """Folder of bus log and transcripts as text; empty while there is none."""
        self.warnings: list[str] = []
        """Messages that the user should see although everything works."""
        self.machines: list[Vm] = []
        """The guests, in the order of their names; a host has no machine."""
        self.hosts: dict[str, Host] = {}
        """The sides that have no guest, by their names."""

    @property
    def hardware(self) -> Hardware:
        """The links' faults: `with pair.hardware.drop("a/2", kind="datagram", count=1):`."""
        return Hardware(self.server.tell)

    def __repr__(self) -> str:
        return f"<{listed(map(self.config.called, self.config.names))}>"

    def __enter__(self) -> Pair:
        """Start server and guests; on failure everything already started is ended again."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(termination_as_exception())
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End guests, then the server, then remove the run folder."""
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        found = self._prepare_guests() if self.config.guests else None
        if not self.config.guests:
            self.library = device_library(self._progress) if self.config.serves else Path()
        self.logs = folders.log_folder(self.config.log)
        stack.callback(os.close, folders.keep_logs(self.logs))
        self.log_name = str(self.logs)
        self.folder = stack.enter_context(folders.run_folder())
        self._start_server(stack)
        self._prepare_hosts(stack)
        if self.config.guests:
            self._start_guests(stack, found)
        elif self.config.serves:
            self.server.wait()

    def _prepare_guests(self) -> Snapshot | None:
        """Get ready what guests start from; return the snapshot, None for a cold boot."""
        software = self.config.software.chosen()
        self._artefacts = ensure_artefacts(
            self._progress, software, self.config.driver, self.config.cards_of_guests
        )
        self.library = self._artefacts.library
        sets = {
            "ntb": ntb_modules(self._progress, software) if self.config.bridge else None,
            "rtrs": rtrs_modules(self._progress, software) if self.config.rtrs else None,
        }
        self._card_archives = card_archives(self.config, self._progress, software)
        self._module_folders = {name: found for name, found in sets.items() if found is not None}
        if self.config.cold:
            return None
        return snapshot.ensure(self._artefacts, self.config.size, self._progress)

    def _prepare_hosts(self, stack: contextlib.ExitStack) -> None:
        for name in self.config.names:
            if self.config.is_host(name):
                functions = root_ports.host_functions(self.sockets[name])
                host = Host(name, functions, self.logs / f"host-{name}.log")
                host.alarms += [self.server.trouble, self._threads.trouble]
                stack.callback(host.stop)
                self.hosts[name] = host

    def _start_server(self, stack: contextlib.ExitStack) -> None:
        settings = self._server_settings()
        self.server = DeviceServer(settings, self.library, self.logs, self.config.server_words)
        self._nics = {nic.name: Nic(nic.socket, nic.mac.hex(":")) for nic in settings.nics}
        if self.config.serves:
            stack.callback(self.server.stop)
            self.server.spawn()
            self._detail(f"device server: started (process {self.server.pid})")
            if self.config.stop_on and self.config.bus_log:
                control, messages = self.folder / hardware.SOCKET, self.logs / "stop-on.log"
                stopper = log_stopper.start(
                    self.logs / "bus", control, self.config.stop_on, messages
                )
                stack.callback(processes.stop, stopper)

    def _start_guests(self, stack: contextlib.ExitStack, found: Snapshot | None) -> None:
        for name in self.config.guests:
            self.machines.append(machine := self._machine(name))
            stack.callback(machine.stop)
        self._drivers = GuestDrivers(
            self.config,
            self._module_folders,
            self._card_archives,
            self.together,
            self._progress,
            self._detail,
        )
        self._guests = BringUp(
            self.config,
            self._artefacts,
            self.folder,
            self.server,
            self._drivers,
            found,
            together=self.together,
            progress=self._progress,
            detail=self._detail,
            warnings=self.warnings,
        )
        self._guests.bring_up(self.machines)
        how = "restored" if self._guests.restores else "booted"
        up = listed(self.config.guests)
        up = f"guests {up} are up" if self.machines[1:] else f"guest {up} is up"
        self._progress(f"{up} ({how}, {self._artefacts.emulator.accelerator})")

    def _server_settings(self) -> ServerSettings:
        folder, names = self.config.sockets or self.folder, self.config.names
        self.sockets = {name: root_ports.sockets(self.config, folder, name) for name in names}
        for path in (each for ports in self.sockets.values() for each in ports.values()):
            roots.check_socket_path(path)
            if not path.parent.is_dir():
                raise UsageError(f"there is no folder {path.parent} for sockets", "make it first")
        nics = [name for name in names if self.config.has_nic(name)]
        return ServerSettings(
            root_ports.hcas(self.config, self.sockets),
            tuple(
                HcaSpec(name, folder / f"nic-{name}.sock", self.config.nic_mac(index))
                for index, name in enumerate(nics)
            ),
            root_ports.functions_at(root_ports.BRIDGE, self.sockets),
            root_ports.functions_at(root_ports.ENGINE, self.sockets),
            self.logs / "bus" if self.config.bus_log else None,
            self.folder / hardware.SOCKET,
            self.config.options,
            self.config.bridge or BRIDGE_DEFAULTS,
        )

    def _machine(self, name: str) -> Vm:
        vm = Vm(
            VmConfig(name, self.config.size, self.sockets[name], self._nics.get(name)),
            self._artefacts.emulator,
            self.folder,
            self.logs,
        )
        vm.causes.append(self.server.trouble)
        vm.alarms.append(self._threads.trouble)
        return vm

    def probe_bridges(self, machines: Sequence[Vm] | None = None) -> None:
        """Load the drivers of bridge and DMA engine in `machines`, in both guests if None.

        Clients can use the bridges afterwards. Raises `LabError`.
        """
        self._drivers.probe_bridges(self.machines if machines is None else machines)

    def network_boot(self, name: str) -> NetworkBoot:
        """Return the way in which iPXE boots guest `name` over its HCA: its peer serves the files.

        The peer's kernel must drive its HCA, with an address, and the pair must
        have no bridge (`network_boot.check`). Raises `LabError`.
        """
        machine = self.machine(name)
        peer = next(each for each in self.machines if each is not machine)
        files = network_boot_files(self._progress)
        return network_boot.prepare(self.config, name, peer, self._artefacts, files)

    def restart(self, name: str, boot: NetworkBoot | None = None) -> float:
        """Switch guest `name` off and start it again; return the seconds it took.

        It comes up at the same device server, or by `boot` over the network; of a host what uses
        it ends. Its devices come back as after a reset; its peer goes on. Main thread only. Raises
        `LabError`.
        """
        if name in self.hosts:
            self.hosts[name].stop()
            return 0.0
        machine = self.machine(name)
        if self.config.window_alias:
            raise UsageError("a guest whose memory is its peer's window cannot be restarted alone")
        machine.stop()
        if boot is not None:
            return self._guests.boot_over_network(machine, boot)
        begin = time.monotonic()
        self._guests.bring_up([machine])
        return time.monotonic() - begin

    def foreground(self, name: str) -> Console | Host:
        """Return what runs Python programs of side `name` one at a time: a console, or a host's."""
        return self.hosts.get(name) or self.machine(name).console

    def program(self, name: str, line: str, timeout: float) -> Callable[[], str]:
        """Return what runs a command line with `python3` on side `name` and returns its output.

        On a host it starts at once. Main thread only; `together` is for what is returned, which
        raises `LabError` when the program fails.
        """
        if (host := self.hosts.get(name)) is not None:
            host.begin(line)
            return lambda: host.output(timeout)
        machine = self.machine(name)
        return lambda: str(machine.run(line, timeout=timeout).text)

    def machine(self, name: str) -> Vm:
        """Return the guest called `name`. Raises `UsageError` when there is none."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise UsageError(f"there is no guest {name}", f"there are {', '.join(self.config.names)}")

    @property
    def a(self) -> Vm:
        """The first guest, which plays the server; a `Host` if that side has no guest."""
        return self._side(0)

    @property
    def b(self) -> Vm:
        """The second guest, which plays the client; a `Host` if that side has no guest."""
        return self._side(1)

    def _side(self, index: int) -> Vm:
        # Typed as what a side is unless one asks for a host, for whoever types it: `hosts[name]`.
        name = self.config.names[index]
        return cast(Vm, self.hosts.get(name) or self.machine(name))

    def both(self, action: Callable[[Vm], object]) -> None:
        """Call `action` with each guest, side by side; the first failure ends the other's wait."""
        self.together(*(lambda machine=machine: action(machine) for machine in self.machines))

    def together(self, *actions: Callable[[], object]) -> None:
        """Run `actions` side by side. Raises the first failure, or what caused it.

        An action waits on a guest, so it ends soon after another one has failed: every guest has
        this pair's trouble among its alarms. After a failure the pair can only be ended.
        """
        try:
            self._threads.run(actions)
        except Exception as error:
            # A dead server makes guests complain about other things.
            raise self.server.trouble() or error from None
