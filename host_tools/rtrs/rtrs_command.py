"""`bluebridge rtrs`: its options; the demonstration is imported when it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS
from bluebridge.guest.providers import HCA, NTRDMA, PROVIDERS
from bluebridge.host_tools.commands.up_options import sides
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import lab_options
from bluebridge.host_tools.lab.config import KERNEL
from bluebridge.host_tools.rtrs.session import Cut

DEMO_SECONDS = 45.0
_CUTS = tuple(kind.value for kind in Cut)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_demo(actions.add_parser("demo", help="a mapped device whose path is cut and restored"))


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Boot two guests with two paths between them, map a RAM disk of the second in the first, "
        "and let fio verify what it writes while a path is cut and restored. With --host b a "
        "program of this machine has the disk. Exit status 0 if fio found no error; the guests "
        "are ended in any case."
    )
    parser.add_argument(
        "--sides",
        type=sides,
        metavar="CLIENT[:SERVER]",
        help="who speaks RTRS: kernel (default) or python (default with ntrdma), or one for each "
        "guest",
    )
    parser.add_argument(
        "--seconds", type=float, default=DEMO_SECONDS, help=f"of fio (default {DEMO_SECONDS:g})"
    )
    lab_options.add_hosts(parser)
    add_common(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare what says over which paths a device is mapped, and how they are cut."""
    parser.add_argument(
        "--cut",
        choices=_CUTS,
        default=Cut.SILENT.value,
        help="how paths are cut: messages vanish (silent, default), or the cable is pulled, which "
        "the guests see (loud)",
    )
    parser.add_argument(
        "--hcas",
        type=int,
        choices=(1, 2),
        default=1,
        help="the two paths run over two ports of one HCA (1, default) or over two HCAs",
    )
    parser.add_argument(
        "--provider",
        choices=PROVIDERS,
        default=HCA,
        help="of verbs: both paths over HCAs (hca, default), or one over a bridge by NTRDMA and "
        "one over an HCA, each cut in its turn (ntrdma; python only)",
    )
    parser.add_argument(
        "--backend",
        choices=BRIDGE_BACK_ENDS,
        default=BACK_END,
        help=f"how ntrdma stores into the peer's memory (default {BACK_END})",
    )
    lab_options.add_cards(parser)
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def main(options: argparse.Namespace) -> int:
    """Run the action of the command line; return its exit status. Raises `LabError`."""
    hosts = options.hosts or ""
    if "a" in hosts:
        raise UsageError("the disk is mapped by the kernel of a guest a", "--host b")
    if hosts and options.sides and options.sides[1] == KERNEL:
        raise UsageError("the kernel's server needs a guest b", "--sides CLIENT:python")
    if options.provider == NTRDMA:
        if KERNEL in (options.sides or ()):
            raise UsageError("the kernel's RTRS does not know NTRDMA", "use --sides python")
        if options.hcas > 1:
            raise UsageError("--hcas is about paths over HCAs", "leave it out")
        if options.card:
            raise UsageError("--card is about paths over HCAs", "leave it out")
    from bluebridge.host_tools.rtrs import demo  # here, since the parser needs this module

    return demo.main(options)
