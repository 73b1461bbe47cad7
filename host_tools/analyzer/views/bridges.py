"""The view of bridges and DMA engines: a line for each store, descriptor, doorbell, message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.activity.assembler import activities, in_order
from bluebridge.host_tools.analyzer.activity.bridge_row import BridgeRow, bridge_row
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.activities import row as activity_row
from bluebridge.host_tools.analyzer.views.activities import tree
from bluebridge.host_tools.analyzer.views.view import Options, View

HEADER = (
    f"{'event':>8} {'timestamp':>13} {'answer us':>10} {'wall us':>10} {'dev':6} {'what':15} "
    f"{'bytes':>8}  from > address > at the peer"
)


def line(row: BridgeRow) -> str:
    """Write a row in the columns of `HEADER`."""
    activity = row.activity
    answer = "-" if row.answer_us is None else f"{row.answer_us:.1f}"
    path = f"{row.source} > {row.target}"
    if row.translated != "-":
        path += f" > {row.translated}"
    return (
        f"{activity.number:8} {activity.begin:13.6f} {answer:>10} {activity.duration_us:10.1f} "
        f"{activity.device:6} {row.what:15} {row.bytes:8}  {path}  {activity.status}"
    ).rstrip()


def json_row(row: BridgeRow, *, transactions: bool) -> view.Row:
    """Convert a row for JSON."""
    found = activity_row(row.activity, transactions=transactions)
    answer = None if row.answer_us is None else round(row.answer_us, 3)
    return found | {
        "what": row.what,
        "bytes": row.bytes,
        "from": row.source,
        "address": row.target,
        "translated": row.translated,
        "answer_us": answer,
    }


@dataclass(slots=True)
class Totals:
    """Rows of one function and kind; `answered` of them have an answer."""

    rows: int = 0
    bytes: int = 0
    wall_us: float = 0.0
    answered: int = 0
    answer_us: float = 0.0
    failed: int = 0


class Summary:
    """Sums up counts and means by function and kind."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str, str], Totals] = {}

    def add(self, row: BridgeRow) -> None:
        """Count a row into its function and kind."""
        totals = self._totals.setdefault((row.activity.device, row.what, row.until), Totals())
        totals.rows += 1
        totals.bytes += row.bytes
        totals.wall_us += row.activity.duration_us
        totals.failed += row.activity.status not in ("", "OK")
        if row.answer_us is not None:
            totals.answered += 1
            totals.answer_us += row.answer_us

    def lines(self) -> Iterator[str]:
        """Write the table of means."""
        yield (
            f"{'means by kind':22} {'count':>8} {'not OK':>8} {'bytes':>12} {'wall us':>10} "
            f"{'answer us':>10}  from what to what"
        )
        for (device, what, until), each in sorted(self._totals.items()):
            answer = f"{each.answer_us / each.answered:.1f}" if each.answered else "-"
            yield (
                f"{device:6} {what:15} {each.rows:8} {each.failed:8} {each.bytes:12} "
                f"{each.wall_us / each.rows:10.1f} {answer:>10}  {until}"
            ).rstrip()


def _rows(reader: LogReader, options: Options) -> Iterator[BridgeRow]:
    for activity in in_order(activities(reader, options.wanted)):
        row = bridge_row(activity)
        if row is not None:
            yield row


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if not beyond_adapters(reader.meta["devices"]):
        raise LogError(f"{reader.folder} has no bridge and no DMA engine: see --view wr")
    found = islice(_rows(reader, options), options.limit)
    if options.json:
        for row in found:
            yield view.line(json_row(row, transactions=options.tree))
        return
    summary = Summary()
    yield HEADER
    for row in found:
        summary.add(row)
        yield line(row)
        if options.tree:
            yield from tree(row.activity)
    yield ""
    yield from summary.lines()


VIEW = View("bridge", "stores, descriptors and doorbells of bridges", _lines, tree=True)
