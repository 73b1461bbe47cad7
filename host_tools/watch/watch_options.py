"""The options of `bluebridge watch`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR",
        help="folder of a run or of a bus log (default: of the newest pair that runs)",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks"
    )
    parser.add_argument(
        "--until", metavar="CONDITION",
        help="wait for an event and end with status 0 when it comes, with 1 after --for: a word or "
        "/regular expression/ of its line, or comparisons such as syndrome!=0, kind=irq, device=a, "
        "status!=OK, joined by and",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="S", help="end after so many seconds"
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value
