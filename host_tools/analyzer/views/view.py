"""A view of a log: what `bluebridge log --view NAME` prints, and the options that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.host_tools.analyzer.analysis.assembly import assembled
from bluebridge.host_tools.analyzer.analysis.transfer import TimeModel, Transfer
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a view: which events to show, and how.

    `limit` bounds the rows, None shows all; `tree` adds the parts of each work request; `decoded`
    says in words what each event was; `json` gives JSON lines instead of a table.
    """

    wanted: Filter = field(default_factory=Filter)
    model: TimeModel | None = None
    limit: int | None = None
    tree: bool = False
    decoded: bool = False
    json: bool = False
    width: int | None = None
    """Columns of the terminal that shows the view; None for whole lines without a terminal."""


@dataclass(frozen=True, slots=True)
class View:
    """A view, listed in `bluebridge.host_tools.analyzer.views.table`.

    `summary` is what `--help` says of it. `lines` gives the lines that are printed and may raise
    `LogError`. The flags say what it takes: `event_options` for --decode and --pcap,
    `event_filters` for --kind and --bar, `tree` for --tree, `modelled` for --profile.
    """

    name: str
    summary: str
    lines: Callable[[LogReader, Options], Iterator[str]]
    event_options: bool = False
    event_filters: bool = False
    tree: bool = False
    modelled: bool = False


def wanted_events(reader: LogReader, options: Options) -> Iterator[Event]:
    """Read the events of the wanted times, of all kinds and devices; raises `LogError`."""
    return reader.events(replace(options.wanted, kinds=None, bar=None, device=None))


def before_wanted(reader: LogReader, options: Options) -> Iterator[Event]:
    """Read the events before the wanted ones, of the kinds that locate NTRDMA's rings.

    Empty when there is nothing before them, or no bridge in the log. Raises `LogError`.
    """
    wanted = options.wanted
    if not (wanted.first or wanted.since) or not beyond_adapters(reader.meta["devices"]):
        return
    for event in LogReader(reader.folder).events(Filter(KINDS)):
        if event.number >= wanted.first and event.time >= (wanted.since or 0.0):
            return
        yield event


def wanted_transfers(reader: LogReader, options: Options) -> Iterator[Transfer]:
    """Assemble the work requests of the wanted devices and times; raises `LogError`."""
    device = options.wanted.device
    events, before = wanted_events(reader, options), before_wanted(reader, options)
    for transfer in assembled(events, reader.meta["devices"], before):
        if device in (None, transfer.device):
            yield transfer
