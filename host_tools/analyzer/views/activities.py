"""The view of activities: a line or a JSON object for each; together they have all events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import activities, in_order
from bluebridge.host_tools.analyzer.activity.routine import failed, routine
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.view import Options, View

HEADER = f"{'event':>8} {'timestamp':>13} {'us':>10} {'dev':5} {'kind':15} {'after':>8} what"
_PLACE = f"{'':8} {'':13} {'':10}"


def line(activity: Activity) -> str:
    """Write an activity in the columns of `HEADER`; `after` is the event of its cause."""
    cause = "" if activity.cause is None else f"#{activity.cause}"
    duration = f"{activity.duration_us:.1f}"
    return (
        f"{activity.number:8} {activity.begin:13.6f} {duration:>10} {activity.device:5} "
        f"{activity.kind.value:15} {cause:>8} {activity.title}  {activity.status}"
    ).rstrip()


def tree(activity: Activity) -> Iterator[str]:
    """Write the transactions of an activity and its notes as a tree, unless its line says all."""
    parts = activity.transactions
    text = parts[0].text
    if len(parts) == 1 and activity.title in (text, f"read {text}", f"write {text}"):
        return
    for place, depth in activity.tree():
        one = parts[place]
        clock = f"{(one.time - activity.begin) * 1e6:10.1f}"
        yield f"{one.number:8} {'':13} {clock} {one.device:5} {'  ' * (depth + 1)}{_words(one)}"
    said = {one.text for one in parts}
    for note in (each for each in activity.notes if each not in said):
        yield f"{_PLACE} {'':5}   {note}"


def row(activity: Activity, *, transactions: bool) -> view.Row:
    """Make the JSON row of an activity."""
    found: view.Row = {
        "event": activity.number,
        "kind": activity.kind.value,
        "device": activity.device,
        "title": activity.title,
        "t": round(activity.begin, 9),
        "us": round(activity.duration_us, 3),
        "status": activity.status,
        "cause": activity.cause,
        "events": sum(one.stores for one in activity.transactions if not one.repeated),
        "notes": activity.notes,
    }
    if activity.transfer is not None:
        found["wr"] = activity.transfer.number
    if transactions:
        found["transactions"] = [view.transaction(one) for one in activity.transactions]
    return found


def _words(one: Transaction) -> str:
    text = one.text or one.role.value
    if one.role is Role.INTERRUPT and not one.text:
        text = f"{text}, vector {one.address}"
    if one.tlp is Tlp.MEMORY_READ or one.tlp is Tlp.MEMORY_WRITE:
        way = "read" if one.tlp is Tlp.MEMORY_READ else "write"
        text = f"{way} {text}, {one.length} bytes"
    elif one.tlp is Tlp.CONFIG_READ or one.tlp is Tlp.CONFIG_WRITE:
        text = f"{'read' if one.tlp is Tlp.CONFIG_READ else 'write'} {text}"
    return f"{text} *" if one.repeated else text


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    found = islice(_chosen(in_order(activities(reader, options.wanted)), options), options.limit)
    if options.json:
        for activity in found:
            yield json.dumps(row(activity, transactions=options.tree))
        return
    yield HEADER
    for activity in found:
        yield line(activity)
        if options.tree:
            yield from tree(activity)


def _chosen(found: Iterable[Activity], options: Options) -> Iterator[Activity]:
    for activity in found:
        lost = activity.kind is ActivityKind.FAULT or failed(activity)
        if (lost or not options.failed) and (options.polling or not routine(activity)):
            yield activity


VIEW = View(
    "all",
    "all that happened, a line for each activity",
    _lines,
    tree=True,
    failed=True,
    polling=True,
)
