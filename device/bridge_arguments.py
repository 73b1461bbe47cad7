"""Bridges and DMA engines on the command line of `python -m bluebridge.device`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from bluebridge.device.bridges import BridgeSpec, FunctionSpec
from bluebridge.device.layout.ntb.models import BY_NAME, DEFAULT, BarSizes, names
from bluebridge.device.ntb.selection import ALIASING, HANGING

NEXT_KEY = re.compile(r",(?=(?:name|socket)=)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in a group of their own."""
    group = parser.add_argument_group("bridge")
    for option, what in (("--ntb", "a side of the bridge; give two"), ("--dma", "a DMA engine")):
        group.add_argument(
            option, action="append", default=[], metavar="name=N,socket=PATH", help=what
        )
    group.add_argument(
        "--ntb-model",
        choices=tuple(BY_NAME),
        default=DEFAULT.name,
        help=f"which bridge (default {DEFAULT.name})",
    )
    group.add_argument(
        "--bar-sizes",
        choices=[each.value for each in BarSizes],
        default=BarSizes.SMALL.value,
        help="windows of 1 MiB (small, default), or 4 GiB for the second one (ntrdma)",
    )
    group.add_argument(
        "--window-alias",
        action="store_true",
        help=f"the second window of {names(ALIASING)} with --bar-sizes {BarSizes.NTRDMA} is the "
        "peer's memory itself, at the same addresses: processors store there without us, and it "
        "never closes",
    )
    group.add_argument(
        "--hang-on",
        action="append",
        default=[],
        choices=tuple(erratum for model in HANGING for erratum in model.errata),
        help=f"play an erratum of {names(HANGING)} out instead of counting it: the "
        "bridge answers nothing any more until it is reset",
    )
    group.add_argument(
        "--strict-windows",
        action="store_true",
        help="a DMA copy into a closed window is an error, where hardware notices nothing",
    )


def parse_function(option: str, text: str) -> FunctionSpec:
    """`name=a,socket=PATH`; raises `ValueError` with one line."""
    values: dict[str, str] = {}
    for part in NEXT_KEY.split(text):
        key, _, value = part.partition("=")
        if key not in ("name", "socket") or not value:
            raise ValueError(f"{option} {text}: {part!r} is not name= or socket=")
        values[key] = value
    if len(values) != 2:
        raise ValueError(f"{option} {text}: name= and socket= are needed")
    return FunctionSpec(values["name"], Path(values["socket"]))


def bridge_spec(arguments: argparse.Namespace) -> BridgeSpec:
    """What the options ask for. Raises `ValueError`."""
    return BridgeSpec(
        [parse_function("--ntb", text) for text in arguments.ntb],
        [parse_function("--dma", text) for text in arguments.dma],
        BY_NAME[arguments.ntb_model],
        BarSizes(arguments.bar_sizes),
        strict=arguments.strict_windows,
        alias=arguments.window_alias,
        hang=arguments.hang_on,
    )
