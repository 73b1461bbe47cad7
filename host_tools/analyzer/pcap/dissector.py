"""`bluebridge log --dissector FILE`: Wireshark's dissector of the packets of buses, in Lua."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from bluebridge.host_tools.analyzer.output import STANDARD_OUTPUT, opened

NAME: Final = "bluebridge_tlp.lua"
AS_ROOT: Final = (
    "as root Wireshark 4.4 loads it neither way, only from the folder that `tshark -G folders` "
    "calls Global Lua Plugins: put it there, or start Wireshark as another user"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option of the command `log`."""
    parser.add_argument(
        "--dissector",
        type=Path,
        metavar="FILE",
        help="write the Wireshark dissector of PCIe packets (.lua), and nothing else",
    )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Check options; raises `ValueError` when another file is to be written, too."""
    for name in ("pcap", "perfetto"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--dissector and --{name}: one file at a time")


def run(path: Path, *, replace: bool) -> None:
    """Write the dissector and print how it is used; raises `LogError` and then leaves no file.

    Folders that are missing are made: who has no plugin of Wireshark yet has no folder for them.
    """
    with contextlib.suppress(OSError):  # `opened` says what is wrong with the path
        path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, replace=replace) as file:
        file.write(files("bluebridge.host_tools.analyzer.pcap").joinpath(NAME).read_bytes())
    if path != STANDARD_OUTPUT:
        root = f"; {AS_ROOT}" if os.geteuid() == 0 else ""
        print(
            f"{path}: used by `tshark -X lua_script:{path} -r FILE`, and always when it is in "
            f"~/.local/lib/wireshark/plugins{root}",
            file=sys.stderr,
        )
