"""The options of `bluebridge up`, and which of them cannot go together."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

from bluebridge.device import cards
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
    "card", "link", "sm", "ports", "blueflame", "blueflame_size", "pro", "wire", "underlay",
    "vni", "ack_timeout_factor", "rnr", "capture", "log_limit"
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
    """Declare the options of the command, apart from the words that follow `--`."""
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
    lab_options.add_software(parser)
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
        "--host",
        type=_host_names,
        metavar="SIDE[,SIDE...]",
        help="sides without a guest, such as b or a,b: `bluebridge python b` drives such a card "
        "from a program of this machine",
    )
    parser.add_argument(
        "--rxe",
        type=lab_options.letters,
        metavar="GUEST[,GUEST...]",
        help="guests with a virtio NIC and Linux's Soft-RoCE (rdma_rxe) in place of an HCA, on the "
        "same network: a ConnectX-3 next to them needs --pro; implies --wire packets",
    )


def _host_names(text: str) -> tuple[str, ...]:
    """Parse `b`, `a,b` or `b2` into names. Raises `argparse.ArgumentTypeError`."""
    found = tuple(dict.fromkeys(text.split(",")))
    if not all(re.fullmatch("[a-h][0-9]*", each) for each in found):
        raise argparse.ArgumentTypeError(f"{text!r}: write the names of sides, such as b or a,b")
    return found


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
        help="make the guests ready for RTRS and RNBD: kernel for the kernel's modules, "
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
    for wrong, what, mend in _objections(options):
        if wrong:
            raise UsageError(what, mend)


def _objections(o: argparse.Namespace) -> Iterator[tuple[object, str, str]]:
    """Yield what cannot go together: whether it was asked for, why it cannot be, the mend."""
    if o.bare:
        asked = [option_table.flag(n) for n in option_table.given(ServerOptions, o, _HARDWARE)]
        devices = {
            "--ntb": o.ntb,
            "--driver kernel": o.driver == "kernel",
            "--rtrs": o.rtrs,
            "--hcas": o.hcas > 1,
        }
        about = [*(asked or o.words)[:1], *(word for word, given in devices.items() if given)]
        yield about, "bare guests have no hardware", f"leave out --bare, or {''.join(about[:1])}"
    for asked, word in ((o.ntb, "--ntb"), (o.rtrs, "--rtrs")):
        two = f"leave out --guests, or {word}"
        yield o.guests > 2 and asked, f"{word} is about two guests", two
    kinds = cards.listed(o.card or cards.DEFAULT)
    yield len(kinds) > o.guests, f"--card: {len(kinds)} cards for {o.guests} guests", "name fewer"
    lacking = cards.objection(kinds, option_table.changed(hardware(o)))
    yield lacking, lacking, "leave it out"
    if o.rtrs:
        apart = cards.no_common_roce(_with_hca(o), o.pro)
        yield apart, apart, "add --pro"
    if o.rxe:
        yield from _rxe_objections(o)
    if o.host:
        yield from _host_objections(o)
    infiniband = o.link == "infiniband"
    if between_hosts(o.wire or MESSAGES):
        mend = "use --guests in place of --pairs"
        yield o.pairs > 1, "one pair is joined to other hosts", mend
        yield infiniband, "RoCE goes to other hosts, InfiniBand does not", "leave out --link"
    elif o.underlay or o.vni:
        yield True, "--underlay, --vni: the wire leads to no host", "add --wire HOST:PORT"
    timed = o.ack_timeout_factor and (o.wire or MESSAGES) == MESSAGES and not o.rxe
    yield timed, "--ack-timeout-factor is about packets", "add --wire packets"
    small = o.image == DEBUG and o.memory_mib < DEBUG_LEAST_MIB
    what = f"guests of {o.memory_mib} MiB have no room for the debugging tools"
    yield small, what, f"give --memory {DEBUG_LEAST_MIB} or more"
    sizes = o.bar_sizes not in (None, BarSizes.SMALL)
    yield sizes and not o.ntb, "--bar-sizes is about a bridge's windows", "add --ntb"
    if o.window_alias:
        other = o.ntb not in [model.name for model in ALIASING]
        yield other, f"--window-alias is about the bridge {names(ALIASING)}", "add --ntb"
        yield o.cold, "--window-alias wants restored guests", "leave out --cold"
    if o.rtrs:
        for guest, side in zip(NAMES, o.rtrs, strict=True):
            lacks = guest in (o.rxe or "") and side != KERNEL
            what = f"guest {guest} has no HCA for Python's RTRS"
            yield lacks, what, "give it the side kernel"
        yield o.driver != "guest", "--rtrs says who drives the HCAs", "leave out --driver"
        unknown = o.ntb and KERNEL in o.rtrs
        yield unknown, "the kernel's RTRS does not know NTRDMA", "leave out --ntb"
        yield infiniband, "RTRS is made ready on Ethernet only", "leave out --link"
    if o.stop_on is not None:
        log_stopper.check(o.stop_on)
        none = o.bare or "--no-log" in o.words
        yield none, "--stop-on is about the bus log", "leave out --bare and --no-log"
    about_it = o.sm is not None and not infiniband
    yield about_it, "--sm is about InfiniBand", "add --link infiniband"
    mend = "use --driver none, then `bluebridge-mlx4` and `opensm` there"
    unmanaged = o.sm == "none" and o.driver == "kernel"
    yield unmanaged, "ports stay down until opensm runs in a guest", mend
    what, mend = "the Python driver speaks RoCE, not InfiniBand", "add --driver kernel, or none"
    yield infiniband and o.driver == "guest", what, mend


def _host_objections(o: argparse.Namespace) -> Iterator[tuple[object, str, str]]:
    letters = {name[0] for name in o.host}
    unknown = letters - set(ascii_lowercase[: o.guests])
    what = f"--host: there is no side {', '.join(sorted(unknown))}"
    yield unknown, what, f"name a to {ascii_lowercase[o.guests - 1]}, or add --guests"
    yield o.bare, "a host without a device has nothing to drive", "leave out --bare, or --host"
    both = letters & set(o.rxe or "")
    what = f"{', '.join(sorted(both))}: a side with a virtio NIC is a guest"
    yield both, what, "leave out --rxe, or --host"
    yield o.window_alias, "a window that is the peer's memory wants guests", "leave out --host"
    what = "the Python driver of a host speaks RoCE, not InfiniBand"
    yield o.link == "infiniband", what, "leave out --link, or --host"
    for asked, word in (
        (o.driver != "guest", "--driver"),
        (o.module, "--module"),
        (o.image != IMAGES[0], "--image"),
        (o.cold, "--cold"),
        (o.kernel, "--kernel"),
        (o.overlay, "--overlay"),
        (o.packages, "--with"),
        (o.rtrs, "--rtrs"),
    ):
        none = len(letters) == o.guests and asked
        yield none, f"{word} is about guests, and there is none", f"leave out {word}"


def _with_hca(o: argparse.Namespace) -> list[cards.Card]:
    """The card of each guest that has one: the last one named is that of all others."""
    kinds = cards.listed(o.card or cards.DEFAULT)
    guests = enumerate(ascii_lowercase[: o.guests])
    return [kinds[min(n, len(kinds) - 1)] for n, name in guests if name not in (o.rxe or "")]


def _rxe_objections(o: argparse.Namespace) -> Iterator[tuple[object, str, str]]:
    v1 = cards.CONNECTX3 in _with_hca(o) and not o.pro
    yield v1, "Soft-RoCE speaks RoCE v2 only, this HCA does not", "add --pro"
    guests = ascii_lowercase[: o.guests]
    all_of_them = not set(o.rxe) < set(guests)
    what = f"--rxe {','.join(o.rxe)}: of guests {', '.join(guests)} one keeps its HCA"
    yield all_of_them, what, "name fewer, or add --guests"
    for asked, word in (
        (o.wire == MESSAGES, "--wire messages"),
        (o.link == "infiniband", "--link infiniband"),
        (o.ntb, "--ntb"),
        (o.bare, "--bare"),
    ):
        yield asked, f"--rxe and {word} exclude each other", "leave out one of them"
