"""The bridge and the DMA engine of both guests change hands: Python's drivers, the kernel's."""

from __future__ import annotations

from functools import partial

from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.lab.root_ports import BRIDGE, ENGINE
from bluebridge.host_tools.machine.vm import Vm

ENGINE_DRIVER, VFIO = "ioatdma", "vfio-pci"
_SECONDS = 120.0


def give_to_kernel(pair: Pair, model: BridgeModel) -> None:
    """Returns when both bridges are ready for clients. Raises `LabError`."""

    def give(machine: Vm) -> None:
        driver = model.kernel_driver
        machine.run(f"modprobe {ENGINE_DRIVER} && modprobe {driver}", timeout=_SECONDS)
        machine.bind(ENGINE, ENGINE_DRIVER)
        machine.bind(BRIDGE, driver)

    pair.together(*(partial(give, machine) for machine in pair.machines))
    pair.probe_bridges()


def give_to_python(pair: Pair) -> None:
    """The kernel's clients must be gone."""

    def give(machine: Vm) -> None:
        machine.bind(BRIDGE, VFIO)
        machine.bind(ENGINE, VFIO)

    pair.together(*(partial(give, machine) for machine in pair.machines))
