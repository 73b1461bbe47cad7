"""The options of `bluebridge mmiotrace`."""

from __future__ import annotations

import argparse
from pathlib import Path

TRACE = "mmiotrace.txt"
"""The name of the file with the guest's record, beside the bus log."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Boot two guests with one CPU each, let the kernel of guest a record the register accesses "
        "of its mlx4 drivers from their loading to their unloading, and hold that record against "
        "the bus log, one access after the other. Exit status 0 if all match."
    )
    parser.add_argument(
        "--blueflame", choices=("on", "off"), default="on", help="advertise BlueFlame (default on)"
    )
    parser.add_argument(
        "--stock",
        action="store_true",
        help="without the module that shows the tracer mappings inside a page",
    )
    parser.add_argument(
        "--log", type=Path, metavar="DIR", help=f"folder for the bus log and the trace, {TRACE}"
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("TRACE", "DIR"),
        help="no guests: hold a trace you made against a bus log",
    )
    parser.add_argument(
        "--device", default="a", help="whose accesses of that log (default a)", metavar="NAME"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
