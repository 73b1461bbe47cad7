"""The options of `bluebridge up`, and which of them cannot go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

from bluebridge.device.layout.ntb.models import ALIASING, BY_NAME, DEFAULT, BarSizes, names
from bluebridge.device.server import option_table
from bluebridge.device.server.options import (
    MESSAGES,
    PACKETS,
    BridgeOptions,
    ServerOptions,
    between_hosts,
    log_limit,
)
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import lab_options, log_stopper
from bluebridge.host_tools.lab.config import KERNEL, MAX_GUESTS, MAX_HCAS, NAMES, SIDES

_HARDWARE = (
    "link", "sm", "ports", "blueflame", "blueflame_size", "pro", "wire", "underlay",
    "vni", "capture", "log_limit"
)  # fmt: skip
"""The options of the device server that `up` has as well; others are given after `--`."""
_BRIDGE = ("bar_sizes", "window_alias")
"""The options of the device server's bridge that `up` has; the model is given with `--ntb`."""


LEAN, DEBUG = IMAGES = ("lean", "debug")
"""The images of a guest: nothing beyond what every guest has, or the tools for debugging."""
DEBUG_MIB = 42
DEBUG_LEAST_MIB = 768
"""The least memory in MiB of a guest with the debugging tools, which take a part of it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command, apart from the words that follow `--` (see `split`)."""
    parser.usage = "bluebridge up [options] [-- ARGUMENT ...]"
    parser.description = (
        "Start a pair of guests, a and b, and return when they are ready. They stay "
        "until `bluebridge down`. While a pair runs, another `up` adds a2 and b2, and so on. What "
        "follows -- goes to the device server, as `python -m bluebridge.device --help` lists it."
    )
    _add_devices(parser)
    _add_bridge(parser)
    _add_start(parser)
    option_table.add_arguments(ServerOptions, parser.add_argument_group("hardware"), _HARDWARE)
    _add_log(parser)
    lab_options.add_arguments(parser)


def _add_devices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=1, metavar="N", help="how many (default 1)")
    parser.add_argument(
        "--guests",
        type=int,
        choices=range(2, MAX_GUESTS + 1),
        default=2,
        metavar="N",
        help=f"guests of one network, a, b, c and so on: 2 (default) to {MAX_GUESTS}",
    )
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument(
        "--hca", action="store_true", help="an HCA in each guest, also with --ntb (default)"
    )
    devices.add_argument("--bare", action="store_true", help="guests without any device")
    parser.add_argument(
        "--hcas",
        type=int,
        choices=range(1, MAX_HCAS + 1),
        default=1,
        help="how many in each guest (default 1); the second are a.1 and b.1 to `bluebridge link`",
    )

    parser.add_argument(
        "--rxe",
        type=_letters,
        metavar="GUEST[,GUEST...]",
        help="guests with a virtio NIC and Linux's Soft-RoCE (rdma_rxe) in place of an HCA, on the "
        "same network: needs --pro, implies --wire packets",
    )


def _letters(text: str) -> str:
    """Parse `b` or `b,c` into letters of guests. Raises `argparse.ArgumentTypeError`."""
    found = text.split(",")
    if not all(len(each) == 1 and each in ascii_lowercase[:MAX_GUESTS] for each in found):
        raise argparse.ArgumentTypeError(f"{text!r}: write the letters of guests, such as b or b,c")
    return "".join(sorted(set(found)))


def _add_bridge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ntb",
        nargs="?",
        const=DEFAULT.name,
        default="",
        choices=tuple(BY_NAME),
        metavar="MODEL",
        help="a non-transparent bridge between the guests and a DMA engine in each; add --hca for "
        f"an HCA as well. MODEL is {', '.join(BY_NAME)} (default {DEFAULT.name})",
    )
    option_table.add_arguments(BridgeOptions, parser, _BRIDGE)


def _add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ring",
        dest="log_limit",
        type=log_limit,
        metavar="SIZE",
        help="the same as --log-limit: the bus log as a ring of the newest events",
    )
    parser.add_argument(
        "--stop-on",
        type=_condition,
        metavar="CONDITION",
        help="end the bus log shortly after an event of which this is true, such as syndrome!=0 or "
        "'kind=command and status!=OK'; what led there stays in the log",
    )


def _condition(text: str) -> str:
    """A condition's text, as it is. Raises `argparse.ArgumentTypeError` for an empty one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the condition is empty: write one such as syndrome!=0")
    return text


def _add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cold", action="store_true", help="boot from power-on instead of restoring a snapshot"
    )
    parser.add_argument(
        "--driver",
        choices=("guest", "kernel", "none"),
        default="guest",
        help="who drives the devices: the Python driver through vfio-pci (guest, default), the "
        "kernel's drivers, loaded and with addresses (kernel), nobody yet (none)",
    )
    parser.add_argument(
        "--rtrs",
        type=sides,
        metavar="SIDE[:SIDE]",
        help="make the guests ready for RTRS and RNBD: kernel for the kernel's modules over mlx4, "
        "python for the guest's Python; with two, the first is for guest a",
    )
    parser.add_argument(
        "--module",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="x.ko",
        help="kernel modules to load in all guests, in this order",
    )
    parser.add_argument(
        "--image",
        choices=IMAGES,
        default=IMAGES[0],
        help="debug: with strace, ltrace, gdb, trace-cmd, perf, nano; fetched at the first time, "
        f"takes {DEBUG_MIB} MiB of each guest's memory (default {IMAGES[0]})",
    )
    parser.add_argument("--verbose", action="store_true", help="tell every step on standard error")


def sides(text: str) -> tuple[str, str]:
    """Parse `kernel` or `kernel:python` into one side for each guest.

    Raises `argparse.ArgumentTypeError`.
    """
    first, _, second = text.partition(":")
    found = first, second or first
    if not set(found) <= set(SIDES):
        raise argparse.ArgumentTypeError(
            f"{text}: write kernel, python, kernel:python or python:kernel"
        )
    return found


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words of `up` at the first `--`: its own, and those for the device server."""
    words = list(words)
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def hardware(options: argparse.Namespace) -> ServerOptions:
    """Return the options of the HCAs; packets meet Soft-RoCE, and no wire has to be named."""
    found = option_table.of_arguments(ServerOptions, options, _HARDWARE)
    return replace(found, wire=PACKETS) if options.rxe and found.wire == MESSAGES else found


def bridge(options: argparse.Namespace) -> BridgeOptions | None:
    """Return the bridge's options, None for no bridge; a window alias brings its own 4 GiB."""
    if not options.ntb:
        return None
    asked = option_table.of_arguments(BridgeOptions, options, _BRIDGE)
    sizes = BarSizes.NTRDMA.value if asked.window_alias else asked.bar_sizes
    return replace(asked, ntb_model=options.ntb, bar_sizes=sizes)


def check_together(options: argparse.Namespace) -> None:
    """Raise `UsageError` if one option takes away the object of another one."""
    if options.bare:
        _check_bare(options)
    if options.guests > 2:
        _check_guests(options)
    if options.rxe:
        _check_rxe(options)
    if between_hosts(options.wire or MESSAGES):
        _check_hosts(options)
    elif options.underlay or options.vni:
        raise UsageError("--underlay, --vni: the wire leads to no host", "add --wire HOST:PORT")
    if options.image == DEBUG and options.memory_mib < DEBUG_LEAST_MIB:
        raise UsageError(
            f"guests of {options.memory_mib} MiB have no room for the debugging tools",
            f"give --memory {DEBUG_LEAST_MIB} or more",
        )
    if options.bar_sizes not in (None, BarSizes.SMALL) and not options.ntb:
        raise UsageError("--bar-sizes is about a bridge's windows", "add --ntb")
    if options.window_alias:
        _check_alias(options)
    if options.rtrs:
        _check_rtrs(options)
    if options.stop_on is not None:
        _check_stop_on(options)
    if options.sm is not None and options.link != "infiniband":
        raise UsageError("--sm is about InfiniBand", "add --link infiniband")
    if options.sm == "none" and options.driver == "kernel":
        raise UsageError(
            "ports stay down until opensm runs in a guest",
            "use --driver none, then `bluebridge-mlx4` and `opensm` there",
        )
    if options.link == "infiniband" and options.driver == "guest":
        raise UsageError(
            "the Python driver speaks RoCE, not InfiniBand", "add --driver kernel, or none"
        )


def _check_rxe(options: argparse.Namespace) -> None:
    if not options.pro:
        raise UsageError("Soft-RoCE speaks RoCE v2 only, this HCA does not", "add --pro")
    guests = ascii_lowercase[: options.guests]
    if not set(options.rxe) < set(guests):
        raise UsageError(
            f"--rxe {','.join(options.rxe)}: of guests {', '.join(guests)} one keeps its HCA",
            "name fewer, or add --guests",
        )
    for asked, word in (
        (options.wire == MESSAGES, "--wire messages"),
        (options.link == "infiniband", "--link infiniband"),
        (options.ntb, "--ntb"),
        (options.bare, "--bare"),
    ):
        if asked:
            raise UsageError(f"--rxe and {word} exclude each other", "leave out one of them")


def _check_hosts(options: argparse.Namespace) -> None:
    if options.pairs > 1:
        raise UsageError("one pair is joined to other hosts", "use --guests in place of --pairs")
    if options.link == "infiniband":
        raise UsageError("RoCE goes to other hosts, InfiniBand does not", "leave out --link")


def _check_guests(options: argparse.Namespace) -> None:
    for asked, word in ((options.ntb, "--ntb"), (options.rtrs, "--rtrs")):
        if asked:
            raise UsageError(f"{word} is about two guests", f"leave out --guests, or {word}")


def _check_stop_on(options: argparse.Namespace) -> None:
    log_stopper.check(options.stop_on)
    if options.bare or "--no-log" in options.words:
        raise UsageError("--stop-on is about the bus log", "leave out --bare and --no-log")


def _check_alias(options: argparse.Namespace) -> None:
    if options.ntb not in [model.name for model in ALIASING]:
        raise UsageError(f"--window-alias is about the bridge {names(ALIASING)}", "add --ntb")
    if options.cold:
        raise UsageError("--window-alias wants restored guests", "leave out --cold")


def _check_rtrs(options: argparse.Namespace) -> None:
    for guest, side in zip(NAMES, options.rtrs, strict=True):
        if guest in (options.rxe or "") and side != KERNEL:
            raise UsageError(
                f"guest {guest} has no HCA for Python's RTRS", "give it the side kernel"
            )
    if options.driver != "guest":
        raise UsageError("--rtrs says who drives the HCAs", "leave out --driver")
    if options.ntb and KERNEL in options.rtrs:
        raise UsageError("the kernel's RTRS does not know NTRDMA", "leave out --ntb")
    if options.link == "infiniband":
        raise UsageError("RTRS is made ready on Ethernet only", "leave out --link")


def _check_bare(options: argparse.Namespace) -> None:
    asked = option_table.given(ServerOptions, options, _HARDWARE)
    about = [option_table.flag(name) for name in asked]
    about = (about or options.words)[:1]
    if options.ntb:
        about.append("--ntb")
    if options.driver == "kernel":
        about.append("--driver kernel")
    if options.rtrs:
        about.append("--rtrs")
    if options.hcas > 1:
        about.append("--hcas")
    if about:
        raise UsageError("bare guests have no hardware", f"leave out --bare, or {about[0]}")
