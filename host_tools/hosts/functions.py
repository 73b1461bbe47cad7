"""The PCI functions of a side without a guest, at the addresses that they would have in one."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from bluebridge.device.layout import ioat
from bluebridge.device.layout.ntb.models import BY_PCI_ID
from bluebridge.device.layout.pci import HCA_IDS
from bluebridge.guest.errors import DeviceError
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus

HCA, ENGINE, BRIDGE = "hca", "dma", "ntb"
_IDENTITIES: dict[str, Collection[tuple[int, int]]] = {
    HCA: HCA_IDS,
    ENGINE: ioat.PCI_IDS,
    BRIDGE: BY_PCI_ID,
}
_CALLED = {HCA: "HCA", ENGINE: "DMA engine", BRIDGE: "bridge"}
_RAM_BYTES = 256 << 20
"""A page of it takes memory once it is written to."""


class HostFunction(NamedTuple):
    """A function of a side: its PCI address, `HCA`, `ENGINE` or `BRIDGE`, and its socket."""

    address: str
    kind: str
    socket: Path

    @property
    def word(self) -> str:
        """The function as one word of a command line."""
        return f"{self.address},{self.kind},{self.socket}"

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the function that has this `word`."""
        address, kind, socket = word.split(",", 2)
        return cls(address, kind, Path(socket))


class HostMachine:
    """The functions of side `name` in one program, with memory that all of them see.

    Implements `guest.drivers.bus.machine.Machine`.
    """

    def __init__(self, name: str, functions: Sequence[HostFunction]) -> None:
        self.name = name
        self._functions = functions
        self._ram = Ram(_RAM_BYTES)

    def find(self, identities: Collection[tuple[int, int]]) -> str:
        """Return the address of the first function of that kind; raises `DeviceError`."""
        kind = next(kind for kind, known in _IDENTITIES.items() if set(known) & set(identities))
        for function in self._functions:
            if function.kind == kind:
                return function.address
        raise DeviceError(f"host {self.name} has no {_CALLED[kind]}")

    def open(self, address: str, bars: Sequence[int]) -> SocketBus:
        """Attach to the function at `address`; raises `DeviceError`."""
        found = next((each for each in self._functions if each.address == address), None)
        if found is None:
            known = ", ".join(each.address for each in self._functions)
            raise DeviceError(f"host {self.name} has no function {address}, but {known}")
        called = f"the {_CALLED[found.kind]} of {self.name}"
        try:
            return SocketBus(found.socket, self._ram)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise DeviceError(f"{called} is held by another program: end that first") from None
            what = error.strerror or str(error)
            raise DeviceError(f"{called} does not answer: {what}; see `bluebridge ps`") from None
