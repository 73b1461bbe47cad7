"""The options of `bluebridge ntrdma`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.device.layout.ntb.models import BY_NAME, DEFAULT
from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS
from bluebridge.guest.perf.sides import TESTS, positive
from bluebridge.host_tools.lab import lab_options
from bluebridge.host_tools.lab.ntrdma import TCP

BACK_ENDS = (*BRIDGE_BACK_ENDS, TCP)
WINDOWS = ALL, REGISTERED = "all", "registered"
"""What a window shows of a guest: all of its memory, or only that of verbs and rings."""
MODELS = tuple(name for name in BY_NAME if name.startswith("intel"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    demo = actions.add_parser(
        "demo",
        help="boot a pair with a bridge and show RDMA through it",
        description="Boot two guests with a bridge between them and a DMA engine in each; run "
        "krping and a latency test of NTRDMA, and show one RDMA write on both buses. Exit status "
        "0 if all of it is right; the guests are ended in any case.",
    )
    perf = actions.add_parser(
        "perf",
        help="measure RDMA through a bridge, in qperf's format",
        description="Measure RDMA between the sides of a pair of its own, guests or programs of "
        "this machine, with qperf's tests and in its format.",
    )
    perf.add_argument("tests", nargs="*", metavar="TEST", help=f"default all: {', '.join(TESTS)}")
    perf.add_argument(
        "--size",
        type=positive,
        help="bytes of bandwidth tests (default 1 MiB; 64 KiB where the processor stores: it takes "
        "seconds for a MiB)",
    )
    perf.add_argument("--count", type=positive, default=100, help="messages of a test")
    perf.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    perf.add_argument(
        "--window",
        choices=WINDOWS,
        default=ALL,
        help=f"what of a guest's memory its peer reaches (default {ALL})",
    )
    lab_options.add_hosts(perf)
    for each in (demo, perf):
        each.add_argument(
            "--backend",
            choices=BACK_ENDS,
            default=BACK_END,
            help=f"how the peer's memory is stored into (default {BACK_END})",
        )
        each.add_argument(
            "--model",
            choices=MODELS,
            default=DEFAULT.name,
            help=f"which bridge (default {DEFAULT.name})",
        )
        each.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
        each.add_argument("--quiet", action="store_true", help="no progress on standard error")
