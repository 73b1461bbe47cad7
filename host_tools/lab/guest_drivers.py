"""Loads kernel drivers in the guests of a pair: those of HCAs, bridges and DMA engines."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bluebridge.host_tools.lab import ntb_drivers, rtrs_sides
from bluebridge.host_tools.lab.config import NTB_ADDRESSES, LabConfig
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.progress import Progress

_SECONDS = 120.0


def _install(machine: Vm, name: str, folder: Path) -> None:
    """Put the modules of `folder` into a folder `name` among the guest's own; mount debugfs.

    The image of the guest is without them. Raises `LabError`.
    """
    archive = f"/tmp/{name}.tar"
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as modules:
            for path in sorted(folder.glob("*.ko")):
                modules.add(path, path.name)
        file.flush()
        machine.agent.put(Path(file.name), archive)
    machine.run(
        f"T=/lib/modules/$(uname -r)/{name}; mkdir -p $T && tar -x -C $T -f {archive} && "
        f"rm {archive} && depmod -a && "
        "{ grep -q /sys/kernel/debug /proc/mounts || mount -t debugfs none /sys/kernel/debug; }",
        timeout=_SECONDS,
    )


_KERNEL_SECONDS = 180.0

RunTogether = Callable[..., None]
"""Runs actions, `Callable[[], None]` each, side by side; raises the first failure."""


class GuestDrivers:
    """Loads the kernel drivers that a `LabConfig` asks for; every method raises `LabError`."""

    def __init__(
        self,
        config: LabConfig,
        modules: Mapping[str, Path],
        together: RunTogether,
        progress: Progress,
        detail: Progress,
    ) -> None:
        """`modules` are folders of modules that the guests get, by the name of the set."""
        self._config = config
        self._modules = modules
        self._together = together
        self._progress = progress
        self._detail = detail

    def load(self, machine: Vm) -> None:
        """Load mlx4 if the kernel is to drive a guest's HCAs, or Soft-RoCE if it has a NIC instead.

        Sets of modules are copied to the guest.
        """
        address = self._config.address(machine.name)
        if self._config.has_nic(machine.name):
            self._progress(f"guest {machine.name}: loading Soft-RoCE")
            machine.run(["bluebridge-rxe", address], timeout=_KERNEL_SECONDS)
            self._detail(f"guest {machine.name}: rxe0 has the NIC, address {address}")
        elif self._config.kernel_drives(machine.name) and self._config.hca:
            self._progress(f"guest {machine.name}: loading the kernel's drivers")
            machine.run(["bluebridge-mlx4", address], timeout=_KERNEL_SECONDS)
            self._detail(f"guest {machine.name}: mlx4 has its device, address {address}")
        for name, folder in self._modules.items():
            _install(machine, name, folder)
            self._detail(f"guest {machine.name}: has the modules of {folder.name}")
        if self._config.rtrs is not None:
            self._progress(f"guest {machine.name}: making RTRS ready")
            rtrs_sides.prepare(machine, self._config)
            self._detail(f"guest {machine.name}: ready for RTRS")

    def probe_bridges(self, machines: Sequence[Vm]) -> None:
        """Load the drivers of bridge and DMA engine in `machines`; clients can use bridges then.

        The pair must have a bridge.
        """
        assert self._config.bridge is not None, "the pair has no bridge"
        model = self._config.bridge.ntb_model
        self._together(*(partial(ntb_drivers.probe, each, model) for each in machines))
        self._together(*(partial(ntb_drivers.settle, each) for each in machines))

    def load_bridges(self, machines: Sequence[Vm]) -> None:
        """Load the drivers of bridge, transport and network device if the kernel drives the bridge.

        It returns when the NTB link is up.
        """
        if not (self._config.bridge and self._config.kernel):
            return
        self._progress("loading the NTB drivers")
        self.probe_bridges(machines)
        addresses = dict(zip(self._config.names, NTB_ADDRESSES, strict=True))
        self._together(
            *(partial(ntb_drivers.load, each, addresses[each.name]) for each in machines)
        )
        for machine in machines:
            self._detail(f"guest {machine.name}: the NTB link is up")
            machine.touched = False
