"""The view of traffic: counts, bytes and response times by kind of transaction.

The response time of a transaction is the time since its cause, that of a work request from its
first transaction to its send completion, that of bridges and DMA engines until their answer.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.host_tools.analyzer.activity.activity import Activity
from bluebridge.host_tools.analyzer.activity.bridge_assembly import BridgeAssembler
from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.analysis.live_rates import P99, Times
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, TimeModel, Tlp, Transaction, Transfer
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.bridges import bridge_row
from bluebridge.host_tools.analyzer.views.view import Options, View, wanted_events

_UNCOUNTED = (
    Role.DOORBELL,
    Role.BLUEFLAME,
    Role.ENTRY,
    Role.NOTE,
    Role.RESET,
    Role.LINK,
    Role.CONTROL,
)
Key = tuple[str, str, str]
"""The machine, the kind of transaction and the kind of its cause."""


@dataclass(slots=True)
class TrafficRow:
    """Counts and times of one kind of transaction on one machine's bus."""

    count: int = 0
    bytes: int = 0
    first: int = 0
    wall: Times = field(default_factory=Times)
    modelled: Times = field(default_factory=Times)


class Traffic:
    """Counts and response times of all transactions in a log."""

    def __init__(self, devices: Sequence[str], model: TimeModel | None = None) -> None:
        self._assembler = TransferAssembler(devices)
        self._bridges = BridgeAssembler(devices)
        self._model = model
        self._rows: defaultdict[Key, TrafficRow] = defaultdict(TrafficRow)

    def add(self, events: Iterable[Event]) -> None:
        """Count events; those of work requests and bridges together with their causes."""
        for event in events:
            if not model_of(event.device).is_adapter:
                for activity in self._bridges.feed(event, transaction_of(event)):
                    self._activity(activity)
                continue
            if not event.work:
                self._other(transaction_of(event))
            for transfer in self._assembler.feed(event):
                self._transfer(transfer)
        for transfer in self._assembler.finish():
            self._transfer(transfer)
        for activity in self._bridges.finish():
            self._activity(activity)

    def _activity(self, activity: Activity) -> None:
        """Count the transactions of a bridge or DMA engine, and the whole up to its answer."""
        parts = activity.transactions
        for one in parts:
            if one.on_bus and not one.repeated:
                self._part(one, parts[one.parent] if one.parent is not None else None, None)
        row = bridge_row(activity)
        if row is not None and row.answer_us is not None:
            whole = self._rows[(activity.device, row.until, "")]
            whole.count += 1
            whole.bytes += row.bytes
            whole.wall.add(row.answer_us, activity.number)

    def _other(self, one: Transaction) -> None:
        """Count a transaction of no work request, unless it posts one."""
        if one.role in _UNCOUNTED:
            return
        kind = one.role.value if one.role is not Role.COMMAND else "firmware command"
        row = self._rows[(one.device, kind, "")]
        row.count += 1
        row.first = row.first or one.number
        if one.tlp is not Tlp.NONE:
            row.bytes += one.length

    def _transfer(self, transfer: Transfer) -> None:
        model = self._model.times(transfer) if self._model is not None else None
        parts = transfer.transactions
        for place, one in enumerate(parts):
            cause = parts[one.parent] if one.parent is not None else None
            self._part(one, cause, _gap(model, place, one.parent))
        done = [place for place, one in enumerate(parts) if one.role is Role.CQE and not one.remote]
        if not done or not parts:
            return
        row = self._rows[(transfer.device, f"{transfer.opcode}, whole", transfer.posted_by.value)]
        row.count += 1
        row.bytes += transfer.length
        row.wall.add((parts[done[0]].time - transfer.start) * 1e6, parts[0].number)
        if model is not None and (at := model[done[0]]) is not None:
            row.modelled.add(at, parts[0].number)

    def _part(self, one: Transaction, cause: Transaction | None, gap: float | None) -> None:
        row = self._rows[(one.device, one.role.value, cause.role.value if cause else "")]
        row.count += 1 if model_of(one.device).is_adapter else one.stores
        row.bytes += one.length
        row.first = row.first or one.number
        if cause is not None:
            row.wall.add(max(0.0, one.time - cause.time) * 1e6, one.number)
            if gap is not None:
                row.modelled.add(gap, one.number)

    def lines(self, device: str | None = None) -> Iterator[str]:
        """Write the table, or one machine's part; the model's times have columns of their own."""
        head = f"{'dev':3} {'kind':26} {'after':22} {'count':>9} {'bytes':>12}"
        head += "".join(f" {name:>9}" for name in ("min us", "avg us", "max us", "p99 us"))
        if self._model is not None:
            head += f" {'modelled avg us':>15} {'p99 us':>9}"
        yield head + f" {'slowest':>9}"
        for key, row in self._of(device):
            yield self._line(key, row)

    def rows(self, device: str | None = None) -> Iterator[view.Row]:
        """Make the JSON rows of the table, or of one machine's part."""
        for (machine, kind, after), row in self._of(device):
            found: view.Row = {
                "device": machine,
                "kind": kind,
                "after": after,
                "count": row.count,
                "bytes": row.bytes,
                "event": row.wall.worst if row.wall.count else row.first,
                "wall_us": _summary(row.wall),
            }
            if self._model is not None:
                found["modelled_us"] = _summary(row.modelled)
            yield found

    def _of(self, device: str | None) -> Iterator[tuple[Key, TrafficRow]]:
        for key, row in sorted(self._rows.items(), key=lambda each: (each[0][0], -each[1].count)):
            if device in (None, key[0]):
                yield key, row

    def _line(self, key: Key, row: TrafficRow) -> str:
        device, kind, after = key
        text = f"{device:3} {kind:26} {after:22} {row.count:9} {row.bytes:12}"
        wall = row.wall
        if wall.count:
            text += "".join(f" {value:9.1f}" for value in wall.summary())
        else:
            text += f" {'-':>9}" * 4
        if self._model is not None:
            model = row.modelled
            shown = (model.total / model.count, model.quantile(P99)) if model.count else None
            text += f" {shown[0]:15.3f} {shown[1]:9.3f}" if shown else f" {'-':>15} {'-':>9}"
        return text + f" {'#' + str(wall.worst if wall.count else row.first):>9}"


def _summary(times: Times) -> view.Row | None:
    if not times.count:
        return None
    values = (round(value, 3) for value in times.summary())
    return dict(zip(("min", "avg", "max", "p99"), values, strict=True))


def _gap(times: Sequence[float | None] | None, place: int, parent: int | None) -> float | None:
    if times is None or parent is None:
        return None
    end, begin = times[place], times[parent]
    return None if end is None or begin is None else end - begin


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    traffic = Traffic(reader.meta["devices"], options.model)
    traffic.add(wanted_events(reader, options))
    if options.json:
        yield from map(json.dumps, traffic.rows(options.wanted.device))
        return
    yield from traffic.lines(options.wanted.device)
    yield ""
    yield "#N is the event of the slowest, or of the first: bluebridge log DIR --event N goes there"


VIEW = View("traffic", "response times by kind", _lines, modelled=True)
