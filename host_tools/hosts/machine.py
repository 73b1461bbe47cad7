"""The machine of a program that plays a side: its functions over their sockets, its memory."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Sequence

from bluebridge.device.layout import ioat
from bluebridge.device.layout.ntb.models import BY_PCI_ID
from bluebridge.device.layout.pci import ADAPTER_IDS
from bluebridge.guest.errors import DeviceError
from bluebridge.host_tools.hosts import functions
from bluebridge.host_tools.hosts.functions import BRIDGE, ENGINE, HCA, HostFunction
from bluebridge.host_tools.hosts.holder import hold, holder
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus

_IDENTITIES: dict[str, Collection[tuple[int, int]]] = {
    HCA: ADAPTER_IDS,
    ENGINE: ioat.PCI_IDS,
    BRIDGE: BY_PCI_ID,
}
_BARS = {
    HCA: {0: 0xF7_B000_0000, 2: 0xF7_A000_0000},
    ENGINE: {0: 0xF7_9000_0000},
    BRIDGE: {0: 0xF7_8100_0000, 2: 0xF7_8000_0000, 4: 0x100_0000_0000},
}
"""The bus addresses of the BARs of the first function; others are `_BAR_STEP` further each."""
_BAR_STEP = 4 << 30  # the largest BAR, which begins at a multiple of its size
_CALLED = {HCA: "HCA", ENGINE: "DMA engine", BRIDGE: "bridge"}
_RAM_BYTES = 256 << 20
"""A page of it takes memory once it is written to."""
_RAM_BASE = 256 << 20
"""In the first 4 GiB, which the window of a bridge for NTRDMA shows."""

_GONE_SECONDS = 5.0
_PAUSE = 0.01


class HostBus(SocketBus):
    """A function that this process holds until it closes it, or ends."""

    def __init__(self, function: HostFunction, side: str, ram: Ram, index: int) -> None:
        """Take the function of `side`, at `index` among those; raises `DeviceError`."""
        called = f"the {_CALLED[function.kind]} of {side}"
        lock = hold(function.socket)
        if lock is None:
            raise DeviceError(f"{called} is held by {holder(function.socket) or 'another program'}")
        self._lock_file = lock
        bars = {bar: at + index * _BAR_STEP for bar, at in _BARS[function.kind].items()}
        deadline = time.monotonic() + _GONE_SECONDS
        while True:
            try:
                return super().__init__(function.socket, ram, bars)
            except OSError as error:
                # The server may not have seen yet that the program before this one has gone.
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                    continue
                os.close(lock)
                raise DeviceError(f"{called} does not answer: {error.strerror or error}") from None

    def close(self) -> None:
        """Give the function back; a second call does nothing."""
        super().close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


class HostMachine:
    """The functions of side `name` in one program, with memory that all of them see.

    Implements `guest.bus.machine.Machine`.
    """

    def __init__(self, name: str, functions: Sequence[HostFunction]) -> None:
        self.name = name
        self._functions = functions
        self._ram = Ram(_RAM_BYTES, _RAM_BASE)

    def close(self) -> None:
        """Forget the memory; functions that are open keep it."""
        self._ram.close()

    def find(self, identities: Collection[tuple[int, int]]) -> str:
        """Return the address of the first function of that kind; raises `DeviceError`."""
        kind = next(kind for kind, known in _IDENTITIES.items() if set(known) & set(identities))
        for function in self._functions:
            if function.kind == kind:
                return function.address
        raise DeviceError(f"host {self.name} has no {_CALLED[kind]}")

    def open(self, address: str, bars: Sequence[int] = ()) -> HostBus:
        """Take the function at `address`, with all its BARs; raises `DeviceError`."""
        for index, function in enumerate(self._functions):
            if function.address == address:
                return HostBus(function, self.name, self._ram, index)
        known = ", ".join(each.address for each in self._functions)
        raise DeviceError(f"host {self.name} has no function {address}, but {known}")


def machine() -> HostMachine:
    """Return the machine of this program, as its environment says."""
    return HostMachine(*functions.played(os.environ))
