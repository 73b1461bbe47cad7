"""The PCI functions of the machine that a program runs on.

In a guest they are those that vfio-pci holds. A program of the host that plays a guest's part finds
others, which a module named in its environment opens, and runs as in a guest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, TypeVar

from bluebridge.device.layout.pci import ADAPTER_IDS
from bluebridge.guest.bus.interface import Bus, Function

MODULE = "BLUEBRIDGE_MACHINE"
"""The variable that names a module; its `machine()` returns the `Machine` of the program."""
Driver = TypeVar("Driver")


class PciFunction(Bus, Function, Protocol):
    """A PCI function with registers of either byte order."""


class Machine(Protocol):
    """A machine with PCI functions."""

    def find(self, identities: Collection[tuple[int, int]]) -> str:
        """Return the PCI address of the first function with one of these (vendor, device) IDs.

        Raises `DeviceError`, which says what is missing.
        """

    def open(self, address: str, bars: Sequence[int]) -> PciFunction:
        """Take the function at a PCI address over; raises `DeviceError`, `OSError`."""


class _Guest:
    """A guest, whose functions are bound to vfio-pci."""

    def find(self, identities: Collection[tuple[int, int]]) -> str:
        from bluebridge.guest.bus.vfio import find_any  # not for programs of the host

        return find_any(identities)

    def open(self, address: str, bars: Sequence[int]) -> PciFunction:
        from bluebridge.guest.bus.vfio import VfioBus

        return VfioBus(address, bars)


@cache
def _machine() -> Machine:
    module = os.environ.get(MODULE)
    if not module:
        return _Guest()
    found: Machine = import_module(module).machine()
    return found


def find_hca() -> str:
    """Return the PCI address of this machine's first HCA; raises `DeviceError`."""
    return _machine().find(ADAPTER_IDS)


def open_bus(address: str = "", bars: Sequence[int] = ()) -> PciFunction:
    """Take over the function at a PCI address, by default this machine's first HCA.

    Without `bars` it has all of its BARs. Raises `DeviceError`, which says what is missing, and
    `OSError`.
    """
    return _machine().open(address or find_hca(), bars)


def open_driver(
    identities: Collection[tuple[int, int]],
    bars: Sequence[int],
    driver: Callable[[PciFunction], Driver],
) -> Driver:
    """Return `driver` for the first function with one of `identities`.

    A function that the driver refuses is given back.
    """
    function = open_bus(_machine().find(identities), bars)
    try:
        return driver(function)
    except BaseException:
        function.close()
        raise
