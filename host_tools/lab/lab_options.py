"""Options of every command that starts a pair: the guests' size, folders, progress."""

from __future__ import annotations

import argparse
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from bluebridge.host_tools.lab.config import MAX_GUESTS, LabConfig


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


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names sides without a guest."""
    parser.add_argument(
        "--host",
        dest="hosts",
        type=letters,
        metavar="SIDE[,SIDE]",
        help="sides that programs of this machine play, without a guest: b, or a,b",
    )


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
