"""The HTML page of `--html`: table of work requests, filters, their transactions, a timeline.

`page.html` in this folder is the template; the data are inserted as compact JSON. The page loads
nothing else, so that it works as a file and without a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from bluebridge.device.buslog.analysis.transaction import Role
from bluebridge.device.buslog.analysis.transaction_table import purpose
from bluebridge.device.buslog.analysis.transfer import TimeModel, Transfer
from bluebridge.device.buslog.analysis.work_requests import BusCounts, modelled

_TEMPLATE = Path(__file__).with_name("page.html")
_MARK = "/*DATA*/"
SHOWN = 32
"""Bytes of data of each transaction in the page, at most."""
_ROLES = {role: number for number, role in enumerate(Role)}


def write(transfers: Iterable[Transfer], model: TimeModel | None, title: str) -> Iterator[bytes]:
    """The page in pieces."""
    before, _, after = _TEMPLATE.read_text().partition(_MARK)
    yield before.encode()
    head: dict[str, object] = {
        "title": title,
        "profile": None if model is None else model.name,
        "roles": [role.value for role in Role],
    }
    yield b"const HEAD=" + _json(head) + b";\nconst REQUESTS=[\n"
    for transfer in transfers:
        yield _json(_request(transfer, model)) + b",\n"
    yield b"];\n" + after.encode()


def _json(value: object) -> bytes:
    """JSON without `<`, so that no end tag can end the script around it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").encode()


def _request(transfer: Transfer, model: TimeModel | None) -> list[object]:
    """The fields in the order of `NAMES` in page.html, its transactions in that of `PART`."""
    own = BusCounts.of(each for each in transfer.transactions if not each.remote)
    times = model.times(transfer) if model is not None else None
    parts = [
        [
            one.number, one.device, round((one.time - transfer.start) * 1e6, 2), _ROLES[one.role],
            one.length, int(one.upstream), int(one.remote), one.parent, purpose(one),
            bytes(one.data[:SHOWN]).hex() if one.on_bus else "", one.completions,
            _rounded(times[place] if times else None),
        ]
        for place, one in enumerate(transfer.transactions)
    ]  # fmt: skip
    return [
        transfer.number, transfer.device, transfer.qpn, transfer.index, transfer.opcode,
        transfer.length, transfer.inline, transfer.posted_by.value, transfer.peer, transfer.status,
        round(transfer.start * 1e6, 2), round(transfer.wall_us, 2),
        _rounded(modelled(transfer, model) if model is not None else None),
        own.down[0], own.reads[0], own.completions[0], own.up[0], transfer.notes, parts,
    ]  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
