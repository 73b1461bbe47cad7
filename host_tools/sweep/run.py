"""Runs a sweep: guests for each setting, all payloads one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from itertools import chain, count
from pathlib import Path

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.model import Model
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import BEST, TYPICAL, WORST
from bluebridge.host_tools.sweep.guest_program import GuestProgram
from bluebridge.host_tools.sweep.journal import Bar, Journal
from bluebridge.host_tools.sweep.modelled import Watch
from bluebridge.host_tools.sweep.request import Row, SweepRequest, Wall

_SECONDS = 180.0
_ATTEMPTS = 20


class Perftest:
    """Measures payloads with ib_write_lat on a pair whose kernels drive the HCAs."""

    def __init__(self, pair: Pair, request: SweepRequest) -> None:
        self._pair = pair
        self._request = request

    def close(self) -> None:
        """End the programs, so that nothing is left of a run."""

    def measure(self, size: int) -> Wall:
        """Measure one payload, again while the program cannot sample the guest's clock.

        Raises `LabError` when either program fails, prints no figures, or finds no clock.
        """
        for _ in range(_ATTEMPTS):
            wall = figures(self._run(size), size)
            if math.isfinite(wall.worst):
                return wall
        raise LabError(
            f"ib_write_lat could not sample the guest's clock in {_ATTEMPTS} attempts",
            "go on when the host is less busy",
        )

    def _run(self, size: int) -> str:
        """What the client prints."""
        words = f"ib_write_lat -d mlx4_0 -s {size} -n {self._request.iterations}"
        words += f" -I {self._request.inline}"
        return perftest.run(self._pair, words, ADDRESSES[0].partition("/")[0], _SECONDS)


def figures(said: str, size: int) -> Wall:
    """Return the figures in the client's output; raises `LabError` when there are none."""
    row = perftest.last_row(said)
    if row[:1] != [str(size)] or len(row) <= TYPICAL:
        raise LabError(f"ib_write_lat printed no figures for {size} bytes", transcript=said)
    return Wall(float(row[TYPICAL]), float(row[BEST]), float(row[WORST]))


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
