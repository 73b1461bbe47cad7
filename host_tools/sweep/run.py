"""Runs a sweep: guests for each setting, all payloads one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import chain, count
from pathlib import Path

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.model import Model
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.sweep.bar import Bar
from bluebridge.host_tools.sweep.guest_program import GuestProgram
from bluebridge.host_tools.sweep.journal import Journal
from bluebridge.host_tools.sweep.modelled import Watch
from bluebridge.host_tools.sweep.perftest import Perftest
from bluebridge.host_tools.sweep.request import SweepRequest
from bluebridge.host_tools.sweep.rows import Row

Tool = Perftest | GuestProgram


def measure(
    request: SweepRequest, journal: Journal, models: Mapping[str, Model], bar: Bar, log: Path | None
) -> None:
    """Measure the rows that the journal lacks, and add each to it. Raises `LabError`."""
    for setting, sizes in journal.todo():
        bar(f"BlueFlame {setting}: {len(sizes)} payloads")
        config = _config(request, setting, log)
        with Pair(config, bar) as pair, closing(_tool(pair, request, setting)) as tool:
            watch = Watch(pair.logs / "bus", models)
            for size in sizes:
                row = _row(request, setting, size, tool, watch)
                journal.add(row)
                bar.row(row)


def _row(request: SweepRequest, setting: str, size: int, tool: Tool, watch: Watch) -> Row:
    watch.begin()
    wall = tool.measure(size)
    modelled = watch.end(size, 2 * request.iterations)
    return Row(setting, size, wall, modelled.path, modelled.times)


def _config(request: SweepRequest, setting: str, log: Path | None) -> LabConfig:
    advertised = "off" if setting == "off" else "on"
    return LabConfig(
        log=_unused(log.absolute(), setting) if log else None,
        kernel=request.tool == "perftest",
        options=ServerOptions(blueflame=advertised, blueflame_size=request.register),
    )


def _unused(log: Path, setting: str) -> Path:
    """A folder for the bus log; a sweep that goes on does not write over what it had."""
    names = chain([setting], (f"{setting}-{number}" for number in count(2)))
    return next(path for name in names if not (path := log / name).exists())


def _tool(pair: Pair, request: SweepRequest, setting: str) -> Tool:
    if request.tool == "perftest":
        return Perftest(pair, request)
    return GuestProgram(pair, request, setting)
