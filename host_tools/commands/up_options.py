"""The options of `bluebridge up`, and which of them cannot go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device import options as server_options
from bluebridge.device.layout.ntb.models import BY_NAME, DEFAULT, MODELS, BarSizes, names
from bluebridge.device.options import ServerOptions
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import options as lab_options

_HARDWARE = ("link", "sm", "ports", "blueflame", "blueflame_size", "pro", "capture")
"""Options of the device server that `up` has as well; others are given behind `--`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command, apart from what follows `--` (see `split`)."""
    parser.usage = "bluebridge up [options] [-- ARGUMENT ...]"
    parser.description = (
        "Start a pair of guests, a and b, and return when they are ready. They stay "
        "until `bluebridge down`. While a pair runs, another `up` adds a2 and b2, and so on. What "
        "follows -- goes to the device server, as `python -m bluebridge.device --help` lists it."
    )
    _add_devices(parser)
    _add_bridge(parser)
    _add_start(parser)
    server_options.add_arguments(parser.add_argument_group("hardware"), _HARDWARE)
    lab_options.add_arguments(parser)


def _add_devices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=1, metavar="N", help="how many (default 1)")
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument(
        "--hca", action="store_true", help="an HCA in each guest; so it is without any such option"
    )
    devices.add_argument("--bare", action="store_true", help="guests without any device")


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
    parser.add_argument(
        "--bar-sizes",
        choices=tuple(each.value for each in BarSizes),
        default=BarSizes.SMALL.value,
        help="the bridge's windows: 1 MiB each (small, default), or 4 GiB for the second (ntrdma)",
    )
    parser.add_argument(
        "--window-alias",
        action="store_true",
        help="the bridge's second window has 4 GiB and is the peer's memory itself, where "
        "processors store at the speed of memory; it never closes",
    )


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
        "--module",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="x.ko",
        help="kernel modules to load in both guests, in this order",
    )
    parser.add_argument("--verbose", action="store_true", help="tell every step on standard error")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of `up` before its first `--`, and those for the device server after it."""
    words = list(words)
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def hardware(options: argparse.Namespace) -> ServerOptions:
    """How the HCAs are to be."""
    return server_options.of_arguments(options, _HARDWARE)


def check_together(options: argparse.Namespace) -> None:
    """Raises `UsageError` if one option takes away what another one is about."""
    if options.bare:
        _check_bare(options)
    if options.bar_sizes != BarSizes.SMALL and not options.ntb:
        raise UsageError("--bar-sizes is about a bridge's windows", "add --ntb")
    if options.window_alias:
        _check_alias(options)
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


def _check_alias(options: argparse.Namespace) -> None:
    able = tuple(model for model in MODELS if model.window_alias)
    if options.ntb not in [model.name for model in able]:
        raise UsageError(f"--window-alias is about the bridge {names(able)}", "add --ntb")
    if options.cold:
        raise UsageError("--window-alias wants restored guests", "leave out --cold")


def _check_bare(options: argparse.Namespace) -> None:
    about = [server_options.flag(name) for name in server_options.given(options, _HARDWARE)]
    about = (about or options.words)[:1]
    if options.ntb:
        about.append("--ntb")
    if options.driver == "kernel":
        about.append("--driver kernel")
    if about:
        raise UsageError("bare guests have no hardware", f"leave out --bare, or {about[0]}")
