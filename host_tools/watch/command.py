"""`bluebridge watch`: what crosses the buses now, in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from bluebridge.device.buslog.analysis import work_requests
from bluebridge.device.buslog.analysis.live_rates import WAYS, Interval, LiveRates, Rate, summary
from bluebridge.device.buslog.conditions import Condition, ConditionError
from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.watch.until import watch_until

LATEST = 8
_UNCUT = 1000
"""Columns for a file or a pipe: more than any line has."""
_FRAME = 5
"""Lines of a table besides its rows."""


def main(options: argparse.Namespace) -> int:
    """Show the log of a pair that runs, or of a folder, until Ctrl-C; the exit status."""
    condition = None if options.until is None else _condition(options.until)
    folder = options.folder or _running()
    try:
        reader = LogReader(folder)
        if condition is not None:
            return watch_until(reader, condition, options.seconds)
        follower = Follower(reader, at_end=True)
        _watch(reader, follower, options.interval, options.seconds)
    except LogError as error:
        raise LabError(str(error), "name the folder of a run or of a log") from error
    except KeyboardInterrupt:
        pass
    return 0


def _condition(text: str) -> Condition:
    try:
        return Condition.parse(text)
    except ConditionError as error:
        raise UsageError(f"--until: {error}") from error


def _running() -> Path:
    """The log of the newest pair."""
    folders = [Path(pair.logs) for _, pair in registry.pairs() if pair.logs]
    if not folders:
        raise LabError("nothing runs", "start a pair with `bluebridge up`, or name a log's folder")
    return folders[-1]


def _watch(reader: LogReader, follower: Follower, interval: float, seconds: float | None) -> None:
    """A terminal gets one picture that changes, anything else one after the other."""
    live = LiveRates(reader.meta["devices"], LATEST)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNCUT)
    end = None if seconds is None else time.monotonic() + seconds
    before = time.monotonic()
    with Screen(console=console, auto_refresh=False, transient=False) as screen:
        while end is None or before < end:
            time.sleep(interval)
            now = time.monotonic()
            live.add(follower.new())
            room = console.size.height if console.is_terminal else None
            shown = picture(reader, live, live.next_interval(), now - before, room)
            if console.is_terminal:
                screen.update(shown, refresh=True)
            else:
                console.print(shown)
                sys.stdout.flush()
            before = now


def picture(
    reader: LogReader, live: LiveRates, interval: Interval, seconds: float, room: int | None = None
) -> Group:
    """Rates, response times and the latest work requests: as many as `room`, in lines, lets in."""
    head = Text(
        f"{reader.folder}: {interval.events / seconds:,.0f} events/s, "
        f"{interval.requests / seconds:,.0f} work requests/s"
    )
    rates = _rates(reader.meta["devices"], interval, seconds)
    parts: list[RenderableType] = [head, rates]
    used = 1 + _FRAME + len(WAYS)
    if interval.responses:
        parts.append(_responses(interval))
        used += _FRAME + len(interval.responses)
    header = [*work_requests.header(None)]
    most = LATEST if room is None else max(0, room - used - len(header))
    latest = [work_requests.line(transfer, None) for transfer in live.latest][-most:]
    if latest and most:
        parts.append(Text("\n".join([*header, *latest]), no_wrap=True, overflow="crop"))
    return Group(*parts)


def _rates(devices: list[str], interval: Interval, seconds: float) -> Table:
    table = Table(title="per second", title_justify="left")
    machines = [name for name in devices if "/" not in name]
    table.add_column("")
    for name in machines:
        table.add_column(f"{name}", justify="right")
        table.add_column(f"{name} bytes", justify="right")
    for way in WAYS:
        cells = []
        for name in machines:
            rate = interval.rates.get((name, way), Rate())
            cells += [f"{rate.count / seconds:,.0f}", f"{rate.bytes / seconds:,.0f}"]
        table.add_row(way, *cells)
    return table


def _responses(interval: Interval) -> Table:
    table = Table(title="work requests, first transaction to completion", title_justify="left")
    for name in ("", "operation", "by"):
        table.add_column(name)
    for name in ("count", "min us", "avg us", "max us", "p99 us"):
        table.add_column(name, justify="right")
    for (device, opcode, way), times in sorted(interval.responses.items()):
        cells = (f"{value:,.1f}" for value in summary(times))
        table.add_row(device, opcode, way, str(times.count), *cells)
    return table
