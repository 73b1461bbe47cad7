"""Options of every command that starts a pair: the guests' size, folders, progress."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bluebridge.host_tools.lab.config import LabConfig


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


def fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return a parsed command line as fields of `LabConfig`; paths are absolute."""
    return {
        "cpus": options.cpus,
        "memory_mib": options.memory_mib,
        "log": options.log.absolute() if options.log else None,
        "sockets": options.sockets.absolute() if options.sockets else None,
    }
