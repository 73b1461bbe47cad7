"""The options of `bluebridge krping`."""

from __future__ import annotations

import argparse

from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS
from bluebridge.guest.providers import HCA, PROVIDERS
from bluebridge.host_tools.lab import lab_options
from bluebridge.host_tools.lab.ntrdma import TCP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Boot two guests, run krping between their HCAs, show statistics, times and "
        "the bus log of the last iteration. addr belongs to the server guest's HCA; the client "
        "gets the next address of the same /24. Exit status 0 only if every iteration was "
        "validated on both sides."
    )
    parser.add_argument("server", help='krping string of the server, "server,addr=...,port=..."')
    parser.add_argument("client", help='krping string of the client, "client,addr=...,count=..."')
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on standard output, and nothing else there; the rest goes to "
        "standard error, or nowhere with --quiet",
    )
    parser.add_argument(
        "--provider",
        choices=PROVIDERS,
        default=HCA,
        help=f"of verbs: HCAs, or NTRDMA over a bridge (default {HCA})",
    )
    parser.add_argument(
        "--backend",
        choices=(*BRIDGE_BACK_ENDS, TCP),
        default=BACK_END,
        help=f"how ntrdma stores into the peer's memory (default {BACK_END})",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="give up on krping after this time (default: 120 s and 0.5 s per iteration; "
        "never without count)",
    )
    lab_options.add_hosts(parser)
    lab_options.add_cards(parser)
    lab_options.add_arguments(parser)
