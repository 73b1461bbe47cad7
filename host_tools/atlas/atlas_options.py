"""The options of `bluebridge atlas`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Start pairs of guests with the kernel's drivers and run stock programs between them, "
        "with one fault of `bluebridge fault list` in guest a at a time. The table says of each "
        "how much it took, what the program saw, how it ended, what the kernel said, "
        "and whether all was well again after the fault was cleared. A guest that crashed or hangs "
        "is started anew. Exit status 0 if the lab was healthy after each fault."
    )
    parser.add_argument(
        "--only", metavar="PATTERN,...", help="faults whose name matches, such as 'wc-*,hung-wr'"
    )
    parser.add_argument(
        "--programs", metavar="NAME,...", help="which programs (default all): `--list` shows them"
    )
    parser.add_argument(
        "--all", action="store_true",
        help="every fault under every program, hours; without it, unless --only or "
        "--programs chooses, each fault runs under the programs that show most of it",
    )  # fmt: skip
    parser.add_argument(
        "--times", type=int, default=1, metavar="N", help="each fault so often (default 1)"
    )
    parser.add_argument(
        "--pairs", type=int, default=2, metavar="N",
        help="so many programs at once, each on a pair of its own (default 2)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="begin no further one after so many minutes"
    )
    parser.add_argument(
        "--rows", type=Path, nargs="+", metavar="FILE",
        help="run nothing: table and page of the rows that earlier runs printed with --json",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show the programs, and start nothing")
    parser.add_argument("--json", action="store_true", help="a JSON object for each row")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="also write the page docs/atlas.md into FILE"
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for bus log and consoles")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
