"""The trace of `--perfetto` for the Perfetto UI and chrome://tracing.

Each machine is a process; its threads are the two directions of its bus and its firmware commands,
and each queue pair's work requests are a track of their own. Arrows lead from a message to its
first transaction at the peer, and from the response back. With a profile there are two more
processes, with modelled times only: every work request begins where it did by the wall clock.
Format: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.analysis.transaction_table import purpose
from bluebridge.device.buslog.analysis.transfer import TimeModel, Transfer
from bluebridge.device.buslog.analysis.work_requests import modelled

Record = dict[str, object]

SLICE_US = 0.5
"""Drawn duration of a transaction; the log has only its time."""
MODEL_PIDS = 100
_TO_DEVICE, _TO_HOST, _WIRE = 1, 2, 3
_THREADS = {
    _TO_DEVICE: "to the adapter",
    _TO_HOST: "to the host",
    _WIRE: "port",
}


class Trace:
    """Makes trace records of work requests."""

    def __init__(self, model: TimeModel | None = None) -> None:
        self._model = model
        self._pids: dict[str, int] = {}
        self._arrows = 0

    def records(self, transfers: Iterable[Transfer]) -> Iterator[Record]:
        """The records, including those that name processes and threads."""
        for transfer in transfers:
            machines = {one.device.partition("/")[0] for one in transfer.transactions}
            machines.add(transfer.device)
            for machine in sorted(machines - set(self._pids)):
                yield from self._process(machine)
            yield from self._request(transfer)
            for one in transfer.transactions:
                yield self._slice(one, transfer)
            yield from self._flows(transfer)
            if self._model is not None:
                yield from self._modelled(transfer, self._model)

    def _process(self, machine: str) -> Iterator[Record]:
        pid = self._pids[machine] = len(self._pids) + 1
        yield _named("process_name", pid, 0, f"machine {machine}")
        for thread, name in _THREADS.items():
            yield _named("thread_name", pid, thread, name)
        if self._model is not None:
            model = f"machine {machine}, modelled by {self._model.name}"
            yield _named("process_name", pid + MODEL_PIDS, 0, model)
            for thread, name in _THREADS.items():
                yield _named("thread_name", pid + MODEL_PIDS, thread, name)

    def _pid(self, device: str) -> int:
        return self._pids[device.partition("/")[0]]

    def _request(self, transfer: Transfer) -> Iterator[Record]:
        """The work request as a whole, on a track of its queue pair."""
        common: Record = {
            "cat": "work request",
            "id": transfer.number,
            "pid": self._pid(transfer.device),
            "tid": 0,
            "name": f"QP {transfer.qpn:#x} {transfer.opcode} {transfer.length} B",
        }
        about: Record = {
            "index": transfer.index,
            "by": transfer.posted_by.value,
            "inline bytes": transfer.inline,
            "status": transfer.status,
            "notes": transfer.notes,
        }
        yield common | {"ph": "b", "ts": _us(transfer.start), "args": about}
        yield common | {"ph": "e", "ts": _us(transfer.end + SLICE_US / 1e6)}

    def _slice(self, one: Transaction, transfer: Transfer) -> Record:
        return {
            "ph": "X",
            "name": one.role.value,
            "cat": one.tlp.value,
            "pid": self._pid(one.device),
            "tid": _thread(one),
            "ts": _us(one.time),
            "dur": SLICE_US,
            "args": {
                "event": one.number,
                "what": purpose(one),
                "bytes": one.length,
                "address": hex(one.address),
                "data": bytes(one.data[:32]).hex(" "),
                "work request": transfer.number,
            },
        }

    def _flows(self, transfer: Transfer) -> Iterator[Record]:
        """Arrows to transactions whose cause is on the other machine."""
        drawn: set[int] = set()
        for one in transfer.transactions:
            if one.parent is None or one.parent in drawn:
                continue
            cause = transfer.transactions[one.parent]
            if cause.tlp is not Tlp.MESSAGE or self._pid(cause.device) == self._pid(one.device):
                continue
            drawn.add(one.parent)
            self._arrows += 1
            common: Record = {"cat": "fabric", "name": cause.role.value, "id": self._arrows}
            yield common | {"ph": "s", **self._point(cause)}
            yield common | {"ph": "f", "bp": "e", **self._point(one)}

    def _point(self, one: Transaction) -> Record:
        return {"pid": self._pid(one.device), "tid": _thread(one), "ts": _us(one.time)}

    def _modelled(self, transfer: Transfer, model: TimeModel) -> Iterator[Record]:
        """The transactions in the model's processes, each from its cause's end to its own."""
        times = model.times(transfer)
        whole = modelled(transfer, model)
        start = transfer.start * 1e6
        for one, done in zip(transfer.transactions, times, strict=True):
            if done is None:
                continue
            begun = times[one.parent] if one.parent is not None else 0.0
            begun = 0.0 if begun is None else begun
            yield {
                "ph": "X",
                "name": one.role.value,
                "cat": "modelled",
                "pid": self._pid(one.device) + MODEL_PIDS,
                "tid": _thread(one),
                "ts": round(start + begun, 4),
                "dur": round(max(done - begun, 0.001), 4),
                "args": {"event": one.number, "modelled us": done, "request us": whole},
            }


def write(records: Iterable[Record]) -> Iterator[bytes]:
    """The file in pieces."""
    head = b'{"displayTimeUnit":"ns","traceEvents":[\n'
    for record in records:
        yield head + json.dumps(record, separators=(",", ":")).encode()
        head = b",\n"
    yield b"\n]}\n" if head == b",\n" else head + b"]}\n"


def _thread(one: Transaction) -> int:
    if one.role in (Role.REQUEST, Role.RESPONSE):
        return _WIRE
    return _TO_HOST if one.upstream else _TO_DEVICE


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _named(kind: str, pid: int, tid: int, name: str) -> Record:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
