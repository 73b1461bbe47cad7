"""The devices that a server exports, the sessions that have opened them, and checks of requests."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bluebridge.device.layout.net.rnbd import OPERATION_MASK, SECTOR, AccessMode, IoFlag, Operation
from bluebridge.guest.protocols.rnbd.engine.actions import Backend
from bluebridge.guest.protocols.rnbd.engine.messages import IoMessage, MessageError
from bluebridge.guest.protocols.rtrs.engine.actions import Direction

PATH_MAX = 4096


@dataclass(slots=True)
class Export:
    """A backend under a name; `writers` counts who opened it rw or migration."""

    name: str
    backend: Backend
    writers: int = 0

    def open(self, access: AccessMode) -> None:
        """Count one more user; raises `PermissionError` as rnbd_server: EACCES, EPERM."""
        if access == AccessMode.RO:
            return
        if not self.backend.writable:
            raise PermissionError(errno.EACCES, f"{self.name} is read-only")
        if self.writers >= (1 if access == AccessMode.RW else 2):
            raise PermissionError(errno.EPERM, f"{self.name} has {self.writers} writers")
        self.writers += 1

    def close(self, access: AccessMode) -> None:
        """Count one user less."""
        if access != AccessMode.RO:
            self.writers -= 1


@dataclass(slots=True)
class OpenDevice:
    """An open device of one session; `name` is as the client wrote it."""

    number: int
    session: str
    name: str
    access: AccessMode
    export: Export


@dataclass(slots=True)
class SessionDevices:
    """The devices of one session by number; a number whose device was closed by force is None.

    Such a number is not given again, since the client still uses it.
    """

    name: str
    version: int = 0
    devices: dict[int, OpenDevice | None] = field(default_factory=dict)

    def find(self, name: str) -> OpenDevice | None:
        """Return the open device of a name, None if there is none."""
        return next((item for item in self.opened() if item.name == name), None)

    def opened(self) -> list[OpenDevice]:
        """Return all devices that are open."""
        return [item for item in self.devices.values() if item is not None]

    def free_number(self) -> int:
        """Return the lowest number that is not in use."""
        number = 0
        while number in self.devices:
            number += 1
        return number


def full_path(name: str) -> str:
    """Return a name as rnbd_server looks for it: below /, without doubled slashes.

    Raises `OSError` with EINVAL for a name that is too long or has "..".
    """
    if len(name) + 1 >= PATH_MAX or ".." in name:
        raise OSError(errno.EINVAL, "a name that is too long or leads upwards")
    return "/" + "/".join(part for part in name.split("/") if part)


def by_path(exports: Iterable[Export]) -> Mapping[str, Export]:
    """Return exports by the `full_path` of their names; raises `OSError` and `ValueError`."""
    found: dict[str, Export] = {}
    for export in exports:
        if found.setdefault(full_path(export.name), export) is not export:
            raise ValueError(f"{export.name} is exported twice")
    return found


_READ = int(Operation.READ)
_WRITE = int(Operation.WRITE)
_FLUSH = int(Operation.FLUSH)
_DISCARD = int(Operation.DISCARD)
_SECURE_ERASE = int(Operation.SECURE_ERASE)
_WRITE_ZEROES = int(Operation.WRITE_ZEROES)
_FUA = int(IoFlag.FUA)


def carry_out(
    device: OpenDevice, message: IoMessage, direction: Direction, data: memoryview
) -> None:
    """Carry out `message`; `data` is what came with it, or the room for its answer.

    Raises `OSError`: EINVAL, EIO beyond the end, EPERM for changes through a read-only device,
    EOPNOTSUPP, and what the backend raises; and `MessageError`.
    """
    operation = message.rw & OPERATION_MASK
    backend = device.export.backend
    if operation == _FLUSH:
        # The kernel's client sends sector 2^64 - 1 with it.
        _need(not message.size and not data, "a flush with data")
        backend.flush()
        return
    size = message.size
    _need(size % SECTOR == 0, f"{size} bytes are no sectors")
    if message.sector + size // SECTOR > backend.geometry.sectors:
        raise OSError(errno.EIO, f"beyond the end of {device.name}: sector {message.sector}")
    offset = message.sector * SECTOR
    if operation == _READ:
        _need(direction == Direction.READ and len(data) == size, "data of another length")
        backend.read(offset, data)
        return
    if device.access == AccessMode.RO:
        raise OSError(errno.EPERM, f"a change of {device.name}, which is open read-only")
    if operation == _WRITE:
        _need(direction == Direction.WRITE and len(data) == size, "data of another length")
        backend.write(offset, data, fua=bool(message.rw & _FUA))
        return
    _need(not data, "data where none belongs")
    if operation == _DISCARD:
        _need_support(backend.geometry.max_discard_sectors, "discard")
        backend.discard(offset, size)
    elif operation == _WRITE_ZEROES:
        _need_support(backend.geometry.max_write_zeroes_sectors, "write zeroes")
        backend.write_zeroes(offset, size, fua=bool(message.rw & _FUA))
    else:
        _need(operation == _SECURE_ERASE, f"operation {operation}")
        _need_support(0, "secure erase")


def _need_support(most_sectors: int, operation: str) -> None:
    """Raise `OSError` with EOPNOTSUPP if a device takes no sector of an operation at a time."""
    if not most_sectors:
        raise OSError(errno.EOPNOTSUPP, operation)


def _need(condition: bool, wrong: str) -> None:
    if not condition:
        raise MessageError(wrong)
