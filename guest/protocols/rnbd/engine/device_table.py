"""The devices of a client's session and their states."""

from __future__ import annotations

import errno
from collections.abc import Callable

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import (
    ClientAction,
    ClientDevice,
    DeviceState,
    Mapped,
    Offline,
    Resized,
)
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry

MAX_SECTORS = 1 << 54
"""The largest size in sectors, beyond which the size in bytes exceeds 63 bits."""


class DeviceTable:
    """The devices in the order of mapping; `tell` takes the actions about them."""

    def __init__(self, tell: Callable[[ClientAction], None]) -> None:
        self.devices: list[ClientDevice] = []
        self._tell = tell

    def add(self, name: str, access: AccessMode) -> ClientDevice:
        """Add a device; raises `FileExistsError`, `ValueError` for a name that does not fit."""
        messages.pack_open(name, access)
        if any(device.name == name for device in self.devices):
            raise FileExistsError(errno.EEXIST, f"{name} is mapped")
        device = ClientDevice(name, access)
        self.devices.append(device)
        return device

    def remove(self, device: ClientDevice) -> None:
        """Forget a device. Raises `OSError` with EALREADY the second time."""
        if device.state == DeviceState.UNMAPPED:
            raise OSError(errno.EALREADY, f"{device.name} is unmapped")
        device.state = DeviceState.UNMAPPED
        self.devices.remove(device)

    def map_failed(self, device: ClientDevice, error: int) -> None:
        """Note that the server does not open the device."""
        self.remove(device)
        self._tell(Mapped(device, error))

    def all_offline(self) -> None:
        """Note that no path is connected."""
        for device in self.devices:
            if device.state == DeviceState.MAPPED:
                device.state = DeviceState.DISCONNECTED
                self._tell(Offline(device))

    def resize(self, device: ClientDevice, sectors: int) -> None:
        """Change the size of a device; raises `OSError` with ENOENT unless it is mapped."""
        if device.state != DeviceState.MAPPED:
            raise OSError(errno.ENOENT, f"{device.name} is not open")
        if device.geometry.sectors != sectors:
            device.geometry = device.geometry._replace(sectors=sectors)
            self._tell(Resized(device))

    def opened(self, device: ClientDevice, number: int, geometry: Geometry) -> int:
        """Note that the server has opened a device; returns 0 or an errno.

        An errno says that the device is not wanted any more or cannot be used.
        """
        if device.state == DeviceState.UNMAPPED:
            return errno.ENOENT
        if not geometry.logical_block_size or geometry.sectors >= MAX_SECTORS:
            return errno.EINVAL
        before, old = device.state, device.geometry
        device.number, device.geometry = number, geometry
        device.state = DeviceState.MAPPED
        if before != DeviceState.INIT and old.sectors != geometry.sectors:
            self._tell(Resized(device))
        return 0
