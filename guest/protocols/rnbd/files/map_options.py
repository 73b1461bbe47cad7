"""The line written to map_device, parsed as by rnbd-clt-sysfs.c: rnbd_clt_parse_map_options."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field

from bluebridge.device.layout.net.rnbd import NAME_BYTES, AccessMode
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.files.addresses import parse_pair

MAX_PATHS = 6
USAGE = (
    'Usage: echo "[dest_port=server port number] sessname=<name of the rtrs session> '
    "path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote side> "
    '[access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]" > map_device\n\n'
    "addr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n"
)
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)", re.ASCII)


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
    """Parse one option and put it into `options`."""
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
