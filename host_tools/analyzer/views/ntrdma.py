"""The view of NTRDMA: a line for each batch of requests, and their costs by batch size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add
from pathlib import Path
from typing import NamedTuple

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.devices.model import named
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.batches import BatchFinder, batches
from bluebridge.host_tools.analyzer.ntrdma.requests import Batch, Publication
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.view import Options, View, before_wanted, wanted_events

COLUMNS = ("descr.", "data", "entries", "index", "bells", "MSIs")
_SIDE = " ".join(f"{column:>7}" for column in COLUMNS)
HEADER = (
    f"{'event':>8} {'dev':3} {'qpn':>8} {'operation':15} {'batch':>5} {'bytes':>9} | "
    f"{'sender:'}{_SIDE} | {'peer:'}{_SIDE} | status"
)
UNSEEN = (
    "NTRDMA ports are up, but the log has none of their stores: a window that is the peer's memory "
    "itself (--window-alias) is stored into without the device"
)

FORGOTTEN = (
    "what the ports told each other is in no segment of the log any more: nothing has a name; keep "
    "the log of a shorter run"
)

_WIDTHS = (8, 6, 6)


class Counts(NamedTuple):
    """The number of stores of one machine by use; `descriptors` are those by a DMA engine.

    An interrupt for several publications is counted with the first of them.
    """

    descriptors: int = 0
    data: int = 0
    entries: int = 0
    indices: int = 0
    bells: int = 0
    interrupts: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums of both."""
        return Counts(*map(add, self, other))

    @property
    def stores(self) -> int:
        """Number of stores of all kinds."""
        return sum(self[1:])


_NONE = Counts()


def counts_of(publications: Iterable[Publication]) -> Counts:
    """Count the stores of some publications."""
    return reduce(Counts.plus, map(_of, publications), _NONE)


def _of(each: Publication) -> Counts:
    last = [each.message] if each.message is not None and each.first_of_message else []
    stored = [*each.data, *each.entries, each.index, *each.bells, *last]
    descriptors = sum(one.store.carrier.is_descriptor for one in stored)
    return Counts(descriptors, len(each.data), len(each.entries), 1, len(each.bells), len(last))


def operation(batch: Batch) -> str:
    """Return the operation of a batch: a `WorkCode`, `mixed`, or `?` without a logged entry."""
    names = {"?" if each.op is None else named(WorkCode, each.op) for each in batch.works}
    return names.pop() if len(names) == 1 else "mixed"


@dataclass(slots=True)
class Costs:
    """Sums over the batches of one machine, operation and size."""

    machine: str
    operation: str
    size: int
    batches: int = 0
    sender: Counts = _NONE
    peer: Counts = _NONE

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.batches * self.size

    @property
    def both(self) -> Counts:
        """Counts of the stores of both machines."""
        return self.sender.plus(self.peer)

    def per_request(self, count: int) -> float:
        """Return a count of this row divided by its number of requests."""
        return count / self.requests if self.requests else 0.0


_Table = dict[tuple[str, str, int], Costs]
"""Costs by machine, operation and size."""


def _count(batch: Batch, table: _Table) -> None:
    key = batch.sent.sender, operation(batch), len(batch.works)
    row = table.setdefault(key, Costs(*key))
    row.batches += 1
    row.sender = row.sender.plus(counts_of([batch.sent]))
    row.peer = row.peer.plus(counts_of(batch.own_answers))


def costs(folder: Path | LogReader) -> list[Costs]:
    """Sum up the costs of a log's requests, by machine, operation and size; raises `LogError`."""
    table: _Table = {}
    for batch in batches(folder):
        _count(batch, table)
    return [table[key] for key in sorted(table)]


def line(batch: Batch) -> str:
    """Write a batch in the columns of `HEADER`; `event` is that of its index."""
    length = sum(work.entry.length for work in batch.works if work.entry is not None)
    return (
        f"{batch.sent.index.store.event.number:8} {batch.sent.sender:3} {batch.queue.key:#8x} "
        f"{operation(batch):15} {len(batch.works):5} {length:9} | {'':7}"
        f"{_counts([batch.sent])} | {'':5}{_counts(batch.own_answers)} | {_status(batch)}"
    )


def _row(batch: Batch) -> view.Row:
    return {
        "event": batch.sent.index.store.event.number,
        "device": batch.sent.sender,
        "qpn": batch.queue.key,
        "operation": operation(batch),
        "batch": len(batch.works),
        "bytes": sum(work.entry.length for work in batch.works if work.entry is not None),
        "sender": counts_of([batch.sent])._asdict(),
        "peer": counts_of(batch.own_answers)._asdict(),
        "status": _status(batch),
    }


def _counts(publications: list[Publication]) -> str:
    return " ".join(f"{each:7}" for each in counts_of(publications))


def _status(batch: Batch) -> str:
    """Return the first status of a batch that is not `OK`, else `OK`."""
    for work in batch.works:
        if work.status is None:
            return "no answer"
        if work.status:
            return named(WorkStatus, work.status)
    return "OK"


def cost_lines(rows: list[Costs]) -> Iterator[str]:
    """Write means for each request, by machine, operation and batch size."""
    yield (
        f"{'for each request':20} {'batch':>5} {'batches':>8} | sender: {'descr.':>7} {'index':>7} "
        f"{'MSIs':>7} | peer: {'descr.':>7} {'index':>7} {'MSIs':>7} | both: {'descr.':>7} "
        f"{'index':>7} {'MSIs':>7}"
    )
    for row in rows:
        head = f"{row.machine:3} {row.operation:16} {row.size:5} {row.batches:8}"
        sides = (_means(row, counts) for counts in (row.sender, row.peer, row.both))
        yield " |".join(
            (head, *(f" {'':{width}}{side}" for width, side in zip(_WIDTHS, sides, strict=True)))
        )


def _means(row: Costs, counts: Counts) -> str:
    values = counts.descriptors, counts.indices, counts.interrupts
    return " ".join(f"{row.per_request(each):7.3f}" for each in values)


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if not beyond_adapters(reader.meta["devices"]):
        raise LogError(
            f"{reader.folder} has no bridge, which NTRDMA goes through: --view wr shows the work "
            "requests of an HCA"
        )
    finder = BatchFinder()
    table: _Table = {}
    finder.skip(before_wanted(reader, options))
    if options.json:
        for batch in islice(_batches(finder, reader, options), options.limit):
            yield json.dumps(_row(batch))
        return
    yield HEADER
    for batch in islice(_batches(finder, reader, options), options.limit):
        _count(batch, table)
        yield line(batch)
    yield ""
    yield from cost_lines([table[key] for key in sorted(table)])
    yield ""
    yield f"{'all stores':3} for what {'':19} {'count':>8}"
    for (machine, use), count in sorted(
        finder.totals.items(), key=lambda item: (item[0][0], -item[1])
    ):
        yield f"{machine:3} {use.value:28} {count:8}"
    if finder.ports.unseen:
        yield UNSEEN
    elif reader.dropped and not finder.ports.known:
        yield FORGOTTEN


def _batches(finder: BatchFinder, reader: LogReader, options: Options) -> Iterator[Batch]:
    device = options.wanted.device
    for event in wanted_events(reader, options):
        for batch in finder.feed(event):
            if device in (None, batch.sent.sender):
                yield batch
    for batch in finder.finish():
        if device in (None, batch.sent.sender):
            yield batch


VIEW = View("ntrdma", "a line for each batch of NTRDMA, and what its requests cost", _lines)
