"""The devices that a server exports, and the sessions that have opened them."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.protocols.rnbd.engine.interface import Backend

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
