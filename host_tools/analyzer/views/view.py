"""A view of `bluebridge log`, and its rows as JSON: times in seconds of the log, or as named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.host_tools.analyzer.analysis.assembly import assembled
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS
from bluebridge.host_tools.analyzer.transaction import OK, TimeModel, Transaction, Transfer

Row = dict[str, object]


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
    failed: bool = False
    """True for only what failed."""
    polling: bool = True
    """False to leave out what a driver does all the time."""
    width: int | None = None
    """Columns of the terminal that shows the view; None for whole lines without a terminal."""


@dataclass(frozen=True, slots=True)
class View:
    """A view, one of `log_command.VIEWS`.

    `summary` is what `--help` says of it. `lines` gives the lines that are printed and may raise
    `LogError`. The flags say what it takes: `event_options` for --decode and --pcap,
    `event_filters` for --kind and --bar, `tree` for --tree, `modelled` for --profile, `failed` for
    --failed, `polling` for --no-polling.
    """

    name: str
    summary: str
    lines: Callable[[LogReader, Options], Iterator[str]]
    event_options: bool = False
    event_filters: bool = False
    tree: bool = False
    modelled: bool = False
    failed: bool = False
    polling: bool = False


def wanted_events(reader: LogReader, options: Options) -> Iterator[Event]:
    """Read the events of the wanted times, of all kinds and devices; raises `LogError`."""
    return reader.events(replace(options.wanted, kinds=None, bar=None, device=None))


def before_wanted(reader: LogReader, options: Options) -> Iterator[Event]:
    """Read the earlier events that locate NTRDMA's rings, if any are; raises `LogError`."""
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
        if device in (None, transfer.device) and (not options.failed or transfer.status != OK):
            yield transfer


def transaction(one: Transaction) -> Row:
    """Make the row of a transaction; `parent` is the place of its cause in the activity."""
    row: Row = {
        "event": one.number,
        "t": round(one.time, 9),
        "device": one.device,
        "type": one.tlp.value,
        "role": one.role.value,
        "upstream": one.upstream,
        "address": one.address,
        "length": one.length,
        "obj": one.obj,
        "data": one.data.hex(),
        "parent": one.parent,
    }
    if one.is_vector:
        row |= {"address": None, "vector": one.address}
    if one.bar:
        row["bar"] = one.bar
    if one.stores > 1:
        row["stores"] = one.stores
    for name in ("remote", "repeated"):
        if getattr(one, name):
            row[name] = True
    if one.text:
        row["text"] = one.text
    return row


def transfer(one: Transfer, model: TimeModel | None, *, tree: bool) -> Row:
    """Make the row of a work request, with `tree` also its transactions."""
    row: Row = {
        "wr": one.number,
        "device": one.device,
        "qpn": one.qpn,
        "index": one.index,
        "operation": one.opcode,
        "bytes": one.length,
        "inline": one.inline,
        "by": one.posted_by.value,
        "peer": one.peer,
        "peer_qpn": one.peer_qpn,
        "psn": one.psn,
        "status": one.status,
        "t": round(one.start, 9),
        "wall_us": round(one.wall_us, 3),
        "notes": one.notes,
    }
    times = model.times(one) if model is not None else ()
    if model is not None:
        row["modelled_us"] = max((time for time in times if time is not None), default=None)
        row["cpu_us"] = model.cpu(one)
    if tree:
        rows = [transaction(each) for each in one.transactions]
        for each, time in zip(rows, times, strict=False):
            each["modelled_us"] = time
        row["transactions"] = rows
    return row
