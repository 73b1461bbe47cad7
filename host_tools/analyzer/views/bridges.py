"""The view of bridges and DMA engines: a line for each store, descriptor, doorbell, message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import activities, in_order
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters, model_of
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.activities import row as activity_row
from bluebridge.host_tools.analyzer.views.activities import tree
from bluebridge.host_tools.analyzer.views.view import Options, View

SHOWN = frozenset((
    ActivityKind.STORE,
    ActivityKind.DESCRIPTOR,
    ActivityKind.DOORBELL,
    ActivityKind.LINK,
    ActivityKind.RESET,
))  # fmt: skip
"""Kinds that always have a row; register accesses have one if they have effects."""
ANSWERS = {
    ActivityKind.STORE: "store to arrival",
    ActivityKind.DESCRIPTOR: "descriptor to completion",
    ActivityKind.DOORBELL: "doorbell to interrupt",
}

_Parts = tuple[str, int, str, str, str, Transaction | None]
"""The fields of a row from `what` to `translated`, and the first answer."""

HEADER = (
    f"{'event':>8} {'timestamp':>13} {'answer us':>10} {'wall us':>10} {'dev':6} {'what':15} "
    f"{'bytes':>8}  from > address > at the peer"
)


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """A row; `source` and `target` are machine and address, `translated` is the target at the peer.

    `answer_us` is the time to the first answer, None without one: a store's arrival, a descriptor's
    completion word, a doorbell's interrupt. `until` names the kind of answer.
    """

    activity: Activity
    what: str
    bytes: int
    source: str
    target: str
    translated: str
    until: str
    answer_us: float | None


def bridge_row(activity: Activity) -> BridgeRow | None:
    """Make the row of an activity; None for other functions and for accesses without effect."""
    if model_of(activity.device).is_adapter:
        return None
    kind = activity.kind
    if kind not in SHOWN and not (
        kind is ActivityKind.ACCESS
        and (len(activity.transactions) > 1 or activity.subject is not None)
    ):
        return None
    make = _MAKERS.get(kind, _of_registers)
    what, length, source, target, translated, answer = make(activity)
    until = ANSWERS.get(kind, "") if what != "load" else ""  # which is logged when it is answered
    answer_us = None if answer is None else (answer.time - activity.begin) * 1e6
    return BridgeRow(activity, what, length, source, target, translated, until, answer_us)


def _place(one: Transaction) -> str:
    if one.role is Role.INTERRUPT:
        return f"{host_of(one.device)} interrupt {one.address:#x}"
    return f"{host_of(one.device)} {one.address:#x}"


def _of_window(activity: Activity) -> _Parts:
    parts = activity.transactions
    root = next(one for one in parts if one.role in (Role.WINDOW_STORE, Role.WINDOW_LOAD))
    arrivals = [one for one in parts if one.parent is not None]
    store = root.role is Role.WINDOW_STORE
    return (
        "store" if store else "load", root.length, host_of(root.device),
        f"BAR{root.bar}+{root.address:#x}", _place(arrivals[0]) if arrivals else "-",
        arrivals[0] if arrivals and store else None,
    )  # fmt: skip


def _of_descriptor(activity: Activity) -> _Parts:
    parts = activity.transactions
    reads = [one for one in parts if one.role is Role.COPY_READ]
    writes = [one for one in parts if one.role is Role.COPY_WRITE]
    done = next((one for one in parts if one.role is Role.COMPLETION_WORD), None)
    source = _place(reads[0]) if reads else host_of(activity.device)
    if beyond := _beyond(parts, Tlp.MEMORY_READ):
        source += f" ({beyond})"
    return (
        "descriptor", sum(one.length for one in writes), source,
        f"{writes[0].address:#x}" if writes else "-", _beyond(parts, Tlp.MEMORY_WRITE) or "-", done,
    )  # fmt: skip


def _beyond(parts: list[Transaction], tlp: Tlp) -> str:
    """Return where the first bytes are read or written at the peer; empty if nowhere."""
    return next((_place(one) for one in parts if one.remote and one.tlp is tlp), "")


def _of_registers(activity: Activity) -> _Parts:
    root, kind = activity.transactions[0], activity.kind
    rung = (one for one in activity.transactions if one.role is Role.INTERRUPT)
    interrupt = next(rung, None) if kind is ActivityKind.DOORBELL else None
    notes = [one.text for one in activity.transactions[1:] if one.role is Role.NOTE]
    effect = ", ".join(notes[:3]) or "-"
    if interrupt is not None:
        effect = f"{host_of(interrupt.device)} vector {interrupt.address}"
    what = str(kind.value)
    if kind is ActivityKind.ACCESS:
        what = "set-up" if activity.subject is None else activity.subject.noun
    length = root.length if root.tlp is not Tlp.NONE else 0
    return what, length, host_of(activity.device), activity.title, effect, interrupt


_MAKERS = {ActivityKind.STORE: _of_window, ActivityKind.DESCRIPTOR: _of_descriptor}


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

    def add(self, row: BridgeRow) -> None:
        """Count a row."""
        self.rows += 1
        self.bytes += row.bytes
        self.wall_us += row.activity.duration_us
        self.failed += row.activity.status not in ("", "OK")
        if row.answer_us is not None:
            self.answered += 1
            self.answer_us += row.answer_us


def summary_lines(totals: dict[tuple[str, str, str], Totals]) -> Iterator[str]:
    """Write the table of means, by function, kind, and kind of answer."""
    yield (
        f"{'means by kind':22} {'count':>8} {'not OK':>8} {'bytes':>12} {'wall us':>10} "
        f"{'answer us':>10}  from what to what"
    )
    for (device, what, until), each in sorted(totals.items()):
        answer = f"{each.answer_us / each.answered:.1f}" if each.answered else "-"
        yield (
            f"{device:6} {what:15} {each.rows:8} {each.failed:8} {each.bytes:12} "
            f"{each.wall_us / each.rows:10.1f} {answer:>10}  {until}"
        ).rstrip()


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if not beyond_adapters(reader.meta["devices"]):
        raise LogError(f"{reader.folder} has no bridge and no DMA engine: see --view wr")
    rows = filter(None, map(bridge_row, in_order(activities(reader, options.wanted))))
    found = islice(rows, options.limit)
    if options.json:
        for row in found:
            yield json.dumps(json_row(row, transactions=options.tree))
        return
    totals: dict[tuple[str, str, str], Totals] = {}
    yield HEADER
    for row in found:
        totals.setdefault((row.activity.device, row.what, row.until), Totals()).add(row)
        yield line(row)
        if options.tree:
            yield from tree(row.activity)
    yield ""
    yield from summary_lines(totals)


VIEW = View("bridge", "stores, descriptors and doorbells of bridges", _lines, tree=True)
