"""The options of `bluebridge ntb`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.device.layout.ntb.models import BY_NAME, DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    demo = actions.add_parser(
        "demo",
        help="boot a pair with a bridge and show what it does",
        description="Boot two guests with a bridge between them and a DMA engine in each, and let "
        "the kernel's own drivers use them: ping and TCP over ntb_netdev, one packet of it in the "
        "bus log, ntb_perf, doorbells and scratchpads by ntb_tool. Exit status 0 if all of it is "
        "right; the guests are ended in any case.",
    )
    demo.add_argument(
        "--model",
        choices=tuple(BY_NAME),
        default=DEFAULT.name,
        help=f"which bridge (default {DEFAULT.name})",
    )
    demo.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    demo.add_argument("--quiet", action="store_true", help="no progress on standard error")
