"""The analyzer's views on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from bluebridge.device.buslog.analysis import requests, table
from bluebridge.device.buslog.analysis.fold import folded
from bluebridge.device.buslog.analysis.rows import transactions
from bluebridge.device.buslog.analysis.traffic import Traffic
from bluebridge.device.buslog.analysis.transfer import TimeModel, Transfer
from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.reader import LogReader

Lines = Iterator[str]


@dataclass(frozen=True, slots=True)
class Options:
    """What to show of a log and how; `limit` bounds rows, `tree` shows each request's parts."""

    wanted: Filter = field(default_factory=Filter)
    model: TimeModel | None = None
    limit: int | None = None
    tree: bool = False


def show_table(reader: LogReader, options: Options) -> Lines:
    """The analyzer's table."""
    yield table.HEADER
    yield from islice(table.lines(transactions(reader.events(options.wanted))), options.limit)


def wanted_transfers(reader: LogReader, options: Options) -> Iterator[Transfer]:
    """The work requests of the devices and times that are wanted."""
    wanted = options.wanted
    events = reader.events(replace(wanted, kinds=None, bar=None, device=None))
    for transfer in folded(events, reader.meta["devices"]):
        if wanted.device in (None, transfer.device):
            yield transfer


def show_requests(reader: LogReader, options: Options) -> Lines:
    """A line for each work request, or its tree; means by kind at the end."""
    summary = requests.Summary(options.model)
    yield from requests.header(options.model)
    for transfer in islice(wanted_transfers(reader, options), options.limit):
        summary.add(transfer)
        yield requests.line(transfer, options.model)
        if options.tree:
            yield from requests.tree(transfer, options.model)
    yield ""
    yield from summary.lines()


def show_traffic(reader: LogReader, options: Options) -> Lines:
    """Counts, bytes and response times by kind."""
    traffic = Traffic(reader.meta["devices"], options.model)
    traffic.add(reader.events(replace(options.wanted, kinds=None, bar=None, device=None)))
    yield from traffic.lines(options.wanted.device)
    yield ""
    yield "#N is the event of the slowest, or of the first: bluebridge log DIR --event N goes there"


VIEWS: dict[str, Callable[[LogReader, Options], Lines]] = {
    "table": show_table,
    "wr": show_requests,
    "traffic": show_traffic,
}
