"""`bluebridge watch`: what crosses the buses now, in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.analysis.live_rates import WAYS, Interval, LiveRates, Rate
from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError, LiveSearch
from bluebridge.host_tools.analyzer.event_lines import HEADER, table_line
from bluebridge.host_tools.analyzer.transaction import Transfer
from bluebridge.host_tools.analyzer.views import work_requests
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import registry

LATEST = 8
_UNCUT = 1000  # Columns for a file or a pipe: more than any line has
_FRAME = 5  # Lines of a table besides its rows

_NARROW_HEADER = (
    f"{'wr':>7} {'dev':3} {'qpn':>8} {'operation':13} {'bytes':>8} {'by':13} {'wall us':>9}  status"
)

_NARROW_WAYS = ("adapter\nwrites", "register\nreads", "memory\nreads", "memory\nwrites",
                "inter-\nrupts", "messages\n")  # fmt: skip
"""`WAYS`, as heads of columns."""
_UNITS = ("B", "kB", "MB", "GB", "TB")

_LOOK_SECONDS = 0.05  # Between two looks; the device server writes its log out as often
BEFORE = 20
"""Events before the one that was found with which the command in the output begins."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR",
        help="folder of a run or of a bus log (default: of the newest pair that runs)",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks"
    )
    parser.add_argument(
        "--until", metavar="CONDITION",
        help="wait for an event and end with status 0 when it comes, with 1 after --for: a word or "
        "/regular expression/ of its line, or comparisons such as syndrome!=0, kind=irq, device=a, "
        "status!=OK, joined by and",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="S", help="end after so many seconds"
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def main(options: argparse.Namespace) -> int:
    """Show the log of a running pair, or of a folder, until Ctrl-C; return the exit status."""
    try:
        condition = None if options.until is None else Condition.parse(options.until)
    except ConditionError as error:
        raise UsageError(f"--until: {error}") from error
    folder = options.folder or _running()
    try:
        reader = LogReader(folder)
        if condition is not None:
            return watch_until(reader, condition, options.seconds)
        follower = Follower(reader, at_end=True)
        _watch(reader, follower, options.interval, options.seconds)
    except LogError as error:
        raise UsageError(str(error), "name the folder of a run or of a log") from error
    except KeyboardInterrupt:
        pass
    return 0


def _running() -> Path:
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
            room, columns = None, None
            if console.is_terminal:
                columns, room = console.size
            shown = picture(reader, live, live.next_interval(), now - before, room, columns)
            if console.is_terminal:
                screen.update(shown, refresh=True)
            else:
                console.print(shown)
                sys.stdout.flush()
            before = now


def picture(
    reader: LogReader,
    live: LiveRates,
    interval: Interval,
    seconds: float,
    room: int | None = None,
    columns: int | None = None,
) -> Group:
    """Rates, response times and the latest work requests: as many as `room`, in lines, lets in.

    `columns` are those of the terminal, None for no bound; few get tables that are narrow.
    """
    head = Text(
        f"{reader.folder}: {interval.events / seconds:,.0f} events/s, "
        f"{interval.requests / seconds:,.0f} work requests/s"
    )
    narrow = columns is not None and columns < len(work_requests.header(None)[1])
    machines = [name for name in reader.meta["devices"] if "/" not in name]
    rates = (_narrow_rates if narrow else _rates)(machines, interval, seconds)
    parts: list[RenderableType] = [head, rates]
    used = 1 + _FRAME + (2 * len(machines) + 1 if narrow else len(WAYS))
    if interval.responses:
        parts.append(_responses(interval))
        used += _FRAME + len(interval.responses)
    header = [_NARROW_HEADER] if narrow else [*work_requests.header(None)]
    most = LATEST if room is None else max(0, room - used - len(header))
    latest = [
        _narrow_line(each) if narrow else work_requests.line(each, None) for each in live.latest
    ][-most:]
    if latest and most:
        parts.append(Text("\n".join([*header, *latest]), no_wrap=True, overflow="crop"))
    return Group(*parts)


def _narrow_line(transfer: Transfer) -> str:
    return (
        f"{transfer.number:7} {transfer.device:3} {transfer.qpn:#8x} {transfer.opcode:13} "
        f"{transfer.length:8} {transfer.posted_by.value:13} {transfer.wall_us:9.1f}  "
        f"{transfer.status}"
    )


def _narrow_rates(machines: list[str], interval: Interval, seconds: float) -> Table:
    """A row for each machine, in which counts stand above bytes."""
    table = Table(title="per second", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in _NARROW_WAYS:
        table.add_column(name, justify="right")
    for name in machines:
        rates = [interval.rates.get((name, way), Rate()) for way in WAYS]
        cells = [
            f"{rate.count / seconds:,.0f}\n{_amount(rate.bytes / seconds)}" if rate.count else "-\n"
            for rate in rates
        ]
        table.add_row(name, *cells)
    return table


def _amount(value: float) -> str:
    power = 0
    while value >= 1000 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.{int(value < 100 and power > 0)}f} {_UNITS[power]}"


def _rates(machines: list[str], interval: Interval, seconds: float) -> Table:
    table = Table(title="per second", title_justify="left")
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
    title = "work requests, first transaction to completion"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "operation", "by"):
        table.add_column(name)
    for name in ("count", "min us", "avg us", "max us", "p99 us"):
        table.add_column(name, justify="right")
    for (device, opcode, way), times in sorted(interval.responses.items()):
        cells = (f"{value:,.1f}" for value in times.summary())
        table.add_row(device, opcode, way, str(times.count), *cells)
    return table


def watch_until(reader: LogReader, condition: Condition, seconds: float | None) -> int:
    """Print the event that comes within `seconds`; return 0, else 1. Raises `LogError`."""
    search = LiveSearch(reader, condition, at_end=True)
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        late = end is not None and time.monotonic() >= end  # what is there by now still counts
        for event in search.new():
            print(HEADER)
            print(table_line(event, words=search.words))
            first = max(0, event.number - BEFORE)
            print(f"event {event.number}; what led there:")
            print(f"  {log_command(reader, first)} --limit {event.number - first + 1}", flush=True)
            return 0
        if late:
            print(f"no event with {condition.text} within {seconds:g} s")
            return 1
        time.sleep(_LOOK_SECONDS)


def log_command(reader: LogReader, first: int) -> str:
    """Return the command that shows the log from an event on."""
    return f"bluebridge log {reader.folder} --decode --event {first}"
