"""Options of every command that starts a pair: the guests' size, folders, progress."""

from __future__ import annotations

import argparse
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from bluebridge.device import cards
from bluebridge.device.server import option_table
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import MAX_GUESTS, NAMES, LabConfig
from bluebridge.host_tools.lab.software import GuestSoftware, checked

_CARDS = ("card", "pro")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; each is named as its field of `LabConfig`, except for `quiet`."""
    parser.add_argument(
        "--cpus",
        type=int,
        default=LabConfig.cpus,
        help=f"CPUs of a guest (default {LabConfig.cpus})",
    )
    parser.add_argument(
        "--memory",
        type=int,
        dest="memory_mib",
        default=LabConfig.memory_mib,
        metavar="MIB",
        help=f"default {LabConfig.memory_mib}",
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    parser.add_argument(
        "--sockets", type=Path, metavar="DIR", help="folder for the HCAs' vfio-user sockets"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def add_software(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the guests' kernel and root."""
    group = parser.add_argument_group("software of the guests")
    group.add_argument(
        "--kernel",
        default="",
        metavar="KERNEL",
        help="a bzImage, or a name of `bluebridge kernel list` (default: what `kernel use` chose)",
    )
    group.add_argument(
        "--modules",
        type=Path,
        metavar="DIR",
        help="what `make modules_install INSTALL_MOD_PATH=DIR` made for that bzImage",
    )
    group.add_argument(
        "--overlay", type=Path, metavar="DIR", help="lay the files of DIR over the guests' root"
    )
    group.add_argument(
        "--with",
        dest="packages",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="add a package of Debian, with what it depends on; may be repeated",
    )


def software(options: argparse.Namespace) -> GuestSoftware:
    """Return what `add_software` declared, with absolute paths. Raises `UsageError`."""
    return GuestSoftware(
        checked(options.kernel) if options.kernel else "",
        options.modules.absolute() if options.modules else None,
        options.overlay.absolute() if options.overlay else None,
        tuple(options.packages),
    )


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names sides without a guest."""
    parser.add_argument(
        "--host",
        dest="hosts",
        type=letters,
        metavar="SIDE[,SIDE]",
        help="sides that programs of this machine play, without a guest: b, or a,b",
    )


def add_cards(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which adapters two sides have."""
    option_table.add_arguments(ServerOptions, parser.add_argument_group("hardware"), _CARDS)


def cards_of(options: argparse.Namespace) -> ServerOptions:
    """Return what `add_cards` declared, for sides that make connections with each other.

    Raises `UsageError` for what these cards have not.
    """
    found = option_table.of_arguments(ServerOptions, options, _CARDS)
    lacking = cards.objection(found.cards, option_table.changed(found))
    if lacking:
        raise UsageError(lacking, "leave it out")
    if apart := cards.no_common_roce(found.cards, found.pro):
        raise UsageError(apart, "add --pro")
    if len(found.cards) > len(NAMES):
        raise UsageError(f"--card: {len(found.cards)} cards for {len(NAMES)} sides", "name fewer")
    return found


def letters(text: str) -> str:
    """Parse `b` or `b,c` into letters of sides. Raises `argparse.ArgumentTypeError`."""
    found = text.split(",")
    if not all(len(each) == 1 and each in ascii_lowercase[:MAX_GUESTS] for each in found):
        raise argparse.ArgumentTypeError(f"{text!r}: write the letters of guests, such as b or b,c")
    return "".join(sorted(set(found)))


def fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return a parsed command line as fields of `LabConfig`; paths are absolute."""
    return {
        "cpus": options.cpus,
        "memory_mib": options.memory_mib,
        "log": options.log.absolute() if options.log else None,
        "sockets": options.sockets.absolute() if options.sockets else None,
        **({"hosts": options.hosts or ""} if "hosts" in options else {}),
    }
