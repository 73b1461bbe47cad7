"""The options of `bluebridge tour`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Start a pair and show on live traffic what an RDMA adapter does: commands, doorbell, WQE, "
        "DMA, completion, interrupt, a wrong key, a lost packet. Each step checks in the bus log "
        "that what it says happened, and has an address that plays it in a browser. The "
        "pair is ended in any case. Exit status 0 if every step was as it says."
    )
    parser.add_argument(
        "--no-pause", action="store_false", dest="pause",
        help="go on by itself (a terminal is asked for Enter at each step)",
    )  # fmt: skip
    parser.add_argument(
        "--bridge", action="store_true",
        help="then a bridge as well: `bluebridge ntb demo`, with drivers that are built once",
    )  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
