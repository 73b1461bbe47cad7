"""The view of NTRDMA: a line for each batch of requests, and the costs by batch size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.layout.ntrdma.work import WorkStatus
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.batches import BatchFinder
from bluebridge.host_tools.analyzer.ntrdma.counts import (
    Costs,
    CostTable,
    Counts,
    counts_of,
    operation,
)
from bluebridge.host_tools.analyzer.ntrdma.requests import Batch, Publication
from bluebridge.host_tools.analyzer.ntrdma.store_text import name
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
            return name(WorkStatus, work.status)
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


_WIDTHS = (8, 6, 6)


def _means(row: Costs, counts: Counts) -> str:
    values = counts.descriptors, counts.indices, counts.interrupts
    return " ".join(f"{row.per_request(each):7.3f}" for each in values)


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if not beyond_adapters(reader.meta["devices"]):
        raise LogError(
            f"{reader.folder} has no bridge, which NTRDMA goes through: --view wr shows the work "
            "requests of an HCA"
        )
    finder, table = BatchFinder(), CostTable()
    finder.skip(before_wanted(reader, options))
    if options.json:
        for batch in islice(_batches(finder, reader, options), options.limit):
            yield json.dumps(_row(batch))
        return
    yield HEADER
    for batch in islice(_batches(finder, reader, options), options.limit):
        table.add(batch)
        yield line(batch)
    yield ""
    yield from cost_lines(table.rows())
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
