"""The options of `bluebridge sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.device.mlx4.settings.config import BLUEFLAME_REGISTERS

OUTPUT = Path("latencyResult.dat")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command; `request` refuses wrong combinations."""
    parser.description = (
        "Measure RDMA WRITE latency for payloads of a range between two guests, with BlueFlame and "
        "without, in wall time and in modelled time from the bus log. A sweep that was stopped "
        "goes on where it was when the same command is given again."
    )
    _add_span(parser.add_argument_group("what to measure"))
    _add_results(parser.add_argument_group("results"))


def _add_span(span: argparse._ArgumentGroup) -> None:
    span.add_argument("--min", type=int, default=4, metavar="BYTES", help="default 4")
    span.add_argument("--max", type=int, default=1024, metavar="BYTES", help="default 1024")
    span.add_argument("--step", type=int, default=10, metavar="BYTES", help="default 10")
    span.add_argument(
        "--blueflame",
        default="on,off",
        metavar="on,off",
        help="settings, one after the other (default on,off); wrong-page and old-size are mistakes "
        "that --tool guest can make",
    )
    span.add_argument(
        "--tool",
        choices=("perftest", "guest"),
        default="perftest",
        help="ib_write_lat over the kernel's drivers and libmlx4 (perftest, default), or the "
        "Python driver's own program (guest)",
    )
    span.add_argument(
        "--iterations", type=int, default=200, metavar="N", help="of a payload (default 200)"
    )
    span.add_argument(
        "--blueflame-size",
        type=int,
        choices=BLUEFLAME_REGISTERS,
        default=512,
        metavar="BYTES",
        help="of a register, two buffers (default 512)",
    )
    span.add_argument(
        "--inline", type=int, metavar="BYTES", help="most to send inline (default 220)"
    )
    span.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="of the modelled time, a name or a file; may be repeated (default system-x, system-z)",
    )


def _add_results(results: argparse._ArgumentGroup) -> None:
    results.add_argument(
        "-o", "--output", type=Path, default=OUTPUT, metavar="FILE", help=f"default {OUTPUT}"
    )
    results.add_argument("--csv", action="store_true", help="commas between columns, not spaces")
    results.add_argument(
        "--plot",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a picture, .png or .svg, or a page, .html; may be repeated",
    )
    results.add_argument("--force", action="store_true", help="replace files that exist")
    results.add_argument(
        "--log", type=Path, metavar="DIR", help="keep the bus logs there, a folder per setting"
    )
    results.add_argument("--quiet", action="store_true", help="no progress on standard error")
