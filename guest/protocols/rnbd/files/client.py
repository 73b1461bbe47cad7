"""The files of a client's devices, for one session, as in the kernel's rnbd-clt-sysfs.c."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.fuse import sysfs
from bluebridge.guest.fuse.sysfs import parse_unsigned, text
from bluebridge.guest.fuse.tree import Answer, Directory, File, Link, Node, directory
from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice
from bluebridge.guest.protocols.rnbd.files.map_options import USAGE, MapOptions, parse_map_options

Over = Callable[[int], None]
"""A call that takes 0 or an errno when an order is over."""


class Devices(Protocol):
    """The devices of a session, with the changes that the files make; all raise `OSError`."""

    @property
    def session(self) -> str:
        """The name of the session."""

    @property
    def mapped(self) -> Sequence[tuple[str, ClientDevice]]:
        """Return the name of the block device (nbd0) and the device of each mapping."""

    def map(self, name: str, access: AccessMode, over: Over) -> None:
        """Map a device."""

    def unmap(self, device: ClientDevice, *, force: bool, over: Over) -> None:
        """Unmap a device; EBUSY if it is in use, unless `force`."""

    def remap(self, device: ClientDevice, over: Over) -> None:
        """Open a device that is offline again."""

    def resize(self, device: ClientDevice, sectors: int) -> None:
        """Change the size of a device."""


class ClientFiles:
    """`tree` has `ctl`, as below /sys/class/rnbd-client, and `block`, as /sys/block."""

    def __init__(self, devices: Devices, cpus: int) -> None:
        self._devices = devices
        self._cpus = cpus
        self.tree = directory(
            {
                "ctl": directory(
                    {
                        "map_device": File(lambda: USAGE, self._map),
                        "devices": Directory(self._links),
                    }
                ),
                "block": Directory(self._blocks),
            }
        )

    def _links(self) -> Mapping[str, Node]:
        return {
            f"{device.name.replace('/', '!')}@{self._devices.session}": Link(f"../../block/{block}")
            for block, device in self._devices.mapped
        }

    def _blocks(self) -> Mapping[str, Node]:
        return {
            block: directory({"rnbd": self._device(device)})
            for block, device in self._devices.mapped
        }

    def _device(self, device: ClientDevice) -> Directory:
        def unmap(data: bytes, answer: Answer) -> None:
            self._unmap(device, data, answer)

        def resize(data: bytes, answer: Answer) -> None:
            self._devices.resize(device, parse_unsigned(data))
            answer.done()

        def remap(data: bytes, answer: Answer) -> None:
            if not sysfs.is_word(data.strip(), "1"):
                raise OSError(errno.EINVAL, "not 1")
            self._devices.remap(device, answer.done)

        return directory(
            {
                "unmap_device": File(lambda: "Usage: echo <normal|force> > unmap_device\n", unmap),
                "resize": File(lambda: "Usage: echo <new size in sectors> > resize\n", resize),
                "remap_device": File(lambda: "Usage: echo <1> > remap_device\n", remap),
                "mapping_path": text(lambda: device.name),
                "state": text(lambda: device.state.value),
                "session": text(lambda: self._devices.session),
                "access_mode": text(lambda: device.access.name.lower()),
                "nr_poll_queues": text(lambda: 0),
            }
        )

    def _unmap(self, device: ClientDevice, data: bytes, answer: Answer) -> None:
        words = data.partition(b"\0")[0].strip()
        if words not in (b"normal", b"force"):
            raise OSError(errno.EINVAL, "neither normal nor force")
        self._devices.unmap(device, force=words == b"force", over=answer.done)

    def _map(self, data: bytes, answer: Answer) -> None:
        options = parse_map_options(data, self._cpus)
        self._check_session(options)
        try:
            self._devices.map(options.device, options.access, answer.done)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None

    def _check_session(self, options: MapOptions) -> None:
        """Raise `OSError` for another session than the program's, and for polling."""
        if options.session != self._devices.session:
            code = errno.EOPNOTSUPP if options.paths else errno.ENXIO
            raise OSError(code, f"the session is {self._devices.session}")
        if options.poll_queues:
            raise OSError(errno.EINVAL, "the session exists without polling")
