"""Transactions, work requests and traffic as JSON lines: stable names, numbers as numbers.

Times are in seconds since the log began, or in microseconds where a name says so; data are in hex.
"""

from __future__ import annotations

import json

from bluebridge.host_tools.analyzer.analysis.transfer import TimeModel, Transfer
from bluebridge.host_tools.analyzer.transaction import Transaction

Row = dict[str, object]


def line(row: Row) -> str:
    """Write a row as a line of JSON."""
    return json.dumps(row)


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
