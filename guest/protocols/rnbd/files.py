"""Devices of RNBD as trees of files, as in rnbd-clt-sysfs.c and rnbd-srv-sysfs.c (Linux 6.12)."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bluebridge.device.layout.net.rnbd import NAME_BYTES, AccessMode
from bluebridge.guest.fuse.tree import (
    Answer,
    Directory,
    File,
    Link,
    Node,
    command,
    directory,
    is_word,
    parse_unsigned,
    text,
)
from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice
from bluebridge.guest.protocols.rnbd.engine.server import Export, OpenDevice, RnbdServer
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.files import parse_pair

MAX_PATHS = 6
USAGE = (
    'Usage: echo "[dest_port=server port number] sessname=<name of the rtrs session> '
    "path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote side> "
    '[access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]" > map_device\n\n'
    "addr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n"
)
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)", re.ASCII)

Over = Callable[[int], None]
"""A call that takes 0 or an errno when an order is over."""


@dataclass(slots=True)
class MapOptions:
    """The parsed options of map_device: `paths` are of a session that does not exist yet."""

    session: str = ""
    device: str = ""
    access: AccessMode = AccessMode.RW
    paths: list[AddressPair] = field(default_factory=list)
    port: int = 0
    poll_queues: int = 0


def parse_map_options(data: bytes, cpus: int) -> MapOptions:
    """Parse the line; raises `OSError`: EINVAL, ENOMEM for more than six paths."""
    options = MapOptions()
    for word in data.partition(b"\0")[0].decode(errors="replace").strip().split(" "):
        if word:
            key, _, value = word.partition("=")
            _take(options, key, value, cpus)
    if not options.session or not options.device:
        raise OSError(errno.EINVAL, "sessname and device_path are needed")
    return options


def _take(options: MapOptions, key: str, value: str, cpus: int) -> None:
    if not value:
        raise OSError(errno.EINVAL, f"{key} without a value")
    if key == "sessname":
        options.session = _name(value)
    elif key == "device_path":
        options.device = _name(value)
    elif key == "path":
        if len(options.paths) >= MAX_PATHS:
            raise OSError(errno.ENOMEM, "too many paths")
        options.paths.append(parse_pair(value))
    elif key == "dest_port":
        options.port = _number(value, 0, 65535)
    elif key == "access_mode":
        options.access = _access(value)
    elif key == "nr_poll_queues":
        queues = _number(value, -1, cpus)
        options.poll_queues = cpus if queues == -1 else queues
    else:
        raise OSError(errno.EINVAL, f"unknown: {key}")


def _name(value: str) -> str:
    if len(value.encode()) > NAME_BYTES:
        raise OSError(errno.EINVAL, "a name that is too long")
    return value.encode()[: NAME_BYTES - 1].decode(errors="ignore")


def _number(value: str, least: int, most: int) -> int:
    if _NUMBER.fullmatch(value) is None:
        raise OSError(errno.EINVAL, f"{value} is no number")
    digits = value.removeprefix("-")
    octal = digits.startswith("0") and digits[1:].isdigit()
    try:
        number = int(value, 8 if octal else 0)
    except ValueError:
        raise OSError(errno.EINVAL, f"{value} is no number") from None
    if not least <= number <= most:
        raise OSError(errno.EINVAL, f"{value} is out of range")
    return number


def _access(value: str) -> AccessMode:
    for mode in AccessMode:
        if value == mode.name.lower():
            return mode
    raise OSError(errno.EINVAL, f"no access mode {value}")


class Devices(Protocol):
    """The devices of a session, with the changes that the files make; all raise `OSError`."""

    @property
    def session(self) -> str: ...

    @property
    def mapped(self) -> Sequence[tuple[str, ClientDevice]]: ...

    def map(self, name: str, access: AccessMode, over: Over) -> None: ...

    def unmap(self, device: ClientDevice, *, force: bool, over: Over) -> None: ...

    def remap(self, device: ClientDevice, over: Over) -> None: ...

    def resize(self, device: ClientDevice, sectors: int) -> None: ...


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
            if not is_word(data.strip(), "1"):
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
        if options.session != self._devices.session:
            code = errno.EOPNOTSUPP if options.paths else errno.ENXIO
            raise OSError(code, f"the session is {self._devices.session}")
        if options.poll_queues:
            raise OSError(errno.EINVAL, "the session exists without polling")
        try:
            self._devices.map(options.device, options.access, answer.done)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None


class ServerFiles:
    """`tree` has `ctl/devices`, with a directory for each export that a session has open."""

    def __init__(self, server: RnbdServer) -> None:
        self._server = server
        self.tree = directory({"ctl": directory({"devices": Directory(self._devices)})})

    def _devices(self) -> Mapping[str, Node]:
        opened: dict[str, list[OpenDevice]] = {}
        for session in self._server.sessions:
            for device in session.opened():
                opened.setdefault(_export_name(device.export), []).append(device)
        return {name: self._device(devices) for name, devices in opened.items()}

    def _device(self, devices: list[OpenDevice]) -> Directory:
        sessions = {device.session.replace("/", "!"): self._session(device) for device in devices}
        children: dict[str, Node] = {"sessions": directory(sessions)}
        place = devices[0].export.backend.place
        if place:
            children["block_dev"] = Link(place)
        return directory(children)

    def _session(self, device: OpenDevice) -> Directory:
        def force_close(answer: Answer) -> None:
            self._server.force_close(device)
            answer.done()

        return directory(
            {
                "access_mode": text(lambda: device.access.name.lower()),
                "read_only": text(lambda: int(device.access == AccessMode.RO)),
                "mapping_path": text(lambda: device.name),
                "force_close": command("force_close", force_close),
            }
        )


def _export_name(export: Export) -> str:
    return export.name.strip("/").replace("/", "!")
