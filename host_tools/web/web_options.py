"""The options of `bluebridge web`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.analyzer.activity import ActivityKind

SAVED = 2000
"""The activities of a saved page unless --limit is given: a browser holds all of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Show the lab, or a finished log, in a browser: hosts, functions and the wire between "
        "them, what happens on them, each step of it, and buttons for cables and faults. "
        "Serves 127.0.0.1 until Ctrl-C; the address has a secret."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR",
        help="folder of a run or of a bus log (default: of the newest pair that runs)",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="TCP port (default: a free one)"
    )
    parser.add_argument(
        "--open", action=argparse.BooleanOptionalAction, default=True,
        help="open the page in a browser (default), or print its address only",
    )  # fmt: skip
    parser.add_argument(
        "--profile", metavar="P", help="modelled times as well, by the profile of this name or file"
    )
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("LOG1", "LOG2"),
        help="instead: two logs side by side, in pairs by what was asked, the differences marked",
    )  # fmt: skip
    group = parser.add_argument_group("a page in one file, instead of a server")
    group.add_argument("--save", type=Path, metavar="FILE", help="write it; it loads nothing else")
    group.add_argument(
        "--limit", type=_count, metavar="N", help=f"with --save: activities (default {SAVED})"
    )
    group.add_argument(
        "--event", type=_count, metavar="N", help="with --save: from event number N on"
    )
    group.add_argument(
        "--kind", choices=[kind.value for kind in ActivityKind], metavar="KIND",
        help="with --save: activities of this kind, such as 'work request'",
    )  # fmt: skip
    group.add_argument("--force", action="store_true", help="with --save: replace FILE")


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is no TCP port: 0 to 65535")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value
