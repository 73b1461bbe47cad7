"""Command-line options for bridges and DMA engines of `python -m bluebridge.device`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from bluebridge.device.server import option_table
from bluebridge.device.server.bridge_options import BridgeOptions
from bluebridge.device.server.bridges import BridgeSpec, FunctionSpec

NEXT_KEY = re.compile(r",(?=(?:name|socket)=)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for functions to serve and those of `BridgeOptions`, in one group."""
    group = parser.add_argument_group("bridge")
    for option, what in (("--ntb", "a side of the bridge; give two"), ("--dma", "a DMA engine")):
        group.add_argument(
            option, action="append", default=[], metavar="name=N,socket=PATH", help=what
        )
    option_table.add_arguments(BridgeOptions, group)


def parse_function(option: str, text: str) -> FunctionSpec:
    """Parse `name=a,socket=PATH`; raises `ValueError` with one line."""
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
    """Make the specification of the bridges and engines that the options ask for.

    Raises `ValueError`.
    """
    return BridgeSpec(
        [parse_function("--ntb", text) for text in arguments.ntb],
        [parse_function("--dma", text) for text in arguments.dma],
        option_table.of_arguments(BridgeOptions, arguments),
    )
