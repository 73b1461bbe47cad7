"""`bluebridge model DIR...`: what the sends in bus logs would take on real machines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from device.buslog.model.model import load
from device.buslog.model.profile import NAMES, ProfileError, built_in, read_profile
from device.buslog.model.samples import read_samples
from device.buslog.model.study import TABLES
from device.buslog.model.tables import size_lines, study_lines
from device.buslog.reader import LogError

DEFAULT = "system-x"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "folders", metavar="DIR", nargs="*", type=Path, help="folder of a run or of a bus log"
    )
    parser.add_argument(
        "--table",
        choices=tuple(TABLES),
        help="this table or figure of the BlueFlame study beside the modelled one; the folders are "
        "sweeps with BlueFlame and without, of 4.3 one with entries in the wrong page",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        help=f"{', '.join(built_in())}, or a TOML file like theirs (default: the table's, "
        f"else {DEFAULT})",
    )
    parser.add_argument(
        "--list", action="store_true", help="the built-in profiles with their constants"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print tables; the exit status."""
    try:
        lines = list(_lines(arguments))
    except (LogError, ProfileError, ValueError) as error:
        print(f"bluebridge model: {error}", file=sys.stderr)
        return 2
    try:
        print("\n".join(lines))
    except BrokenPipeError:  # `| head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _lines(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.list:
        for name in built_in():
            profile = read_profile(name)
            values = ", ".join(f"{each} {getattr(profile.us, each):g}" for each in NAMES)
            yield f"{name}: stores {profile.stores}; us: {values}"
        return
    if not arguments.folders:
        raise ValueError("no DIR: name the folder of a run or of a bus log")
    table = TABLES.get(arguments.table)
    model = load(arguments.profile or (table.profile if table else DEFAULT))
    logs = [read_samples(folder, model) for folder in arguments.folders]
    yield from size_lines(model, logs) if table is None else study_lines(table, model, logs)
