"""The view of work requests: counts and bytes by type of transaction, wall and modelled time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import add

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import (
    Role,
    TimeModel,
    Tlp,
    Transaction,
    Transfer,
    modelled,
)
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.view import Options, View, wanted_transfers

Tally = tuple[int, int]
"""A number of transactions and their total bytes."""

COLUMNS = ("writes", "reads", "completions", "to memory")
_SIDE = "  ".join(f"{name:>11}" for name in COLUMNS[:3]) + f"  {COLUMNS[3]:>11}  irq"
_LEFT = f"{'wr':>7} {'dev':3} {'qpn':>8} {'index':>7} {'operation':13} {'bytes':>7} {'by':13}"


@dataclass(slots=True)
class BusCounts:
    """Counts of transactions on one side of a work request; `completions` are of its reads."""

    down: Tally = (0, 0)
    reads: Tally = (0, 0)
    completions: Tally = (0, 0)
    up: Tally = (0, 0)
    interrupts: int = 0

    @classmethod
    def of(cls, transfer: Transfer, *, remote: bool) -> BusCounts:
        """Count the transactions that crossed the bus of one side."""
        found = cls()
        for one in transfer.transactions:
            if one.repeated or one.remote is not remote:
                continue
            if one.role is Role.INTERRUPT:
                found.interrupts += 1
            elif one.tlp is Tlp.MEMORY_READ and one.upstream:
                found.reads = _plus(found.reads, one.requests, one.length)
                found.completions = _plus(found.completions, one.completions, one.length)
            elif one.tlp is Tlp.MEMORY_WRITE and one.upstream:
                found.up = _plus(found.up, one.requests, one.length)
            elif one.tlp is Tlp.MEMORY_WRITE:
                found.down = _plus(found.down, one.requests, one.length)
        return found


def _plus(tally: Tally, count: int, length: int) -> Tally:
    return tally[0] + count, tally[1] + length


def header(model: TimeModel | None) -> list[str]:
    """Write two lines of column heads; with a model also those of its columns."""
    times = f" {'wall us':>10}"
    above = f"{'':{len(_LEFT)}} | {'sender: count/bytes':{len(_SIDE)}} | {'peer: reads':>11}"
    if model is not None:
        times += f" {'modelled us':>12} {'CPU us':>8}"
    tail = f" | {'count/bytes':>11}  {'to memory':>11}  irq |{times}  status"
    return [above.rstrip(), f"{_LEFT} | {_SIDE}{tail}"]


def line(transfer: Transfer, model: TimeModel | None) -> str:
    """Write a work request as a line of the table."""
    own, peer = (BusCounts.of(transfer, remote=remote) for remote in (False, True))
    sides = "  ".join(f"{_tally(each):>11}" for each in (own.down, own.reads, own.completions))
    sides += f"  {_tally(own.up):>11}  {own.interrupts:3}"
    theirs = f"{_tally(peer.reads):>11}  {_tally(peer.up):>11}  {peer.interrupts:3}"
    times = f" {transfer.wall_us:10.1f}"
    if model is not None:
        times += f" {_us(modelled(transfer, model)):>12} {model.cpu(transfer):8.3f}"
    return (
        f"{transfer.number:7} {transfer.device:3} {transfer.qpn:#8x} {transfer.index:7} "
        f"{transfer.opcode:13} {transfer.length:7} {transfer.posted_by.value:13} | {sides} | "
        f"{theirs} |{times}  {transfer.status}"
    ).rstrip()


def tree(transfer: Transfer, model: TimeModel | None) -> Iterator[str]:
    """Write a work request's transactions as an indented tree, with a time column per machine."""
    machines = [transfer.device, transfer.peer or "-"]
    begun: dict[bool, float] = {}
    for each in transfer.transactions:
        begun[each.remote] = min(begun.get(each.remote, each.time), each.time)
    times = model.times(transfer) if model is not None else ()
    head = f"  {'event':>8} {machines[0] + ' us':>10} {machines[1] + ' us':>10}"
    yield head + (f" {'modelled us':>12}" if model is not None else "") + "  transaction"
    for place, depth in transfer.tree():
        each = transfer.transactions[place]
        clock = f"{(each.time - begun[each.remote]) * 1e6:10.1f}"
        columns = f"{'':10} {clock}" if each.remote else f"{clock} {'':10}"
        if model is not None:
            columns += f" {_us(times[place]):>12}"
        yield f"  {each.number:8} {columns}  {'  ' * depth}{_words(each)}"
    for note in transfer.notes:
        yield f"  {'':8} {note}"


def _words(one: Transaction) -> str:
    if one.text:
        return f"{one.text} *" if one.repeated else one.text
    text = f"{one.role.value}, {one.length} bytes"
    if one.role is Role.INTERRUPT:
        text = f"{one.role.value}, vector {one.address}"
    if one.stores > 1:
        text += f" in {one.stores} stores"
    if one.tlp is Tlp.MEMORY_READ:
        text += f", {one.completions} completion{'s' if one.completions != 1 else ''}"
    return text


def _tally(tally: Tally) -> str:
    count, length = tally
    return f"{count}/{length}" if count else "-"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


@dataclass(slots=True)
class Totals:
    """Sums over the work requests of one kind."""

    requests: int = 0
    sides: list[list[int]] = field(default_factory=lambda: [[0] * 5, [0] * 5])
    wall_us: float = 0.0
    modelled_us: float = 0.0
    cpu_us: float = 0.0


class Summary:
    """Sums up means by device, operation and `PostedBy`."""

    def __init__(self, model: TimeModel | None) -> None:
        self._model = model
        self._kinds: dict[tuple[str, str, str], Totals] = {}

    def add(self, transfer: Transfer) -> None:
        """Count a work request into its kind."""
        key = transfer.device, transfer.opcode, transfer.posted_by.value
        totals = self._kinds.setdefault(key, Totals())
        totals.requests += 1
        totals.wall_us += transfer.wall_us
        for remote, sums in zip((False, True), totals.sides, strict=True):
            counts = BusCounts.of(transfer, remote=remote)
            tallies = (counts.down, counts.reads, counts.completions, counts.up)
            added = (*(count for count, _ in tallies), counts.interrupts)
            sums[:] = map(add, sums, added)
        if self._model is not None:
            totals.modelled_us += modelled(transfer, self._model) or 0.0
            totals.cpu_us += self._model.cpu(transfer)

    def lines(self) -> Iterator[str]:
        """Write the table of means."""
        yield (
            f"{'means by kind':29} {'count':>8} | sender {'writes':>7} {'reads':>6} {'compl.':>6} "
            f"{'to mem':>6} {'irq':>5} | peer {'reads':>6} {'to mem':>6} {'irq':>5} |"
            f" {'wall us':>10}"
            + (f" {'modelled us':>12} {'CPU us':>8}" if self._model is not None else "")
        )
        for (device, opcode, path), totals in sorted(self._kinds.items()):
            count = totals.requests
            own, peer = ([each / count for each in side] for side in totals.sides)
            text = f"{device:3} {opcode:13} {path:11} {count:8} |       "
            text += f" {own[0]:7.2f} {own[1]:6.2f} {own[2]:6.2f} {own[3]:6.2f} {own[4]:5.2f} |"
            text += f"      {peer[1]:6.2f} {peer[3]:6.2f} {peer[4]:5.2f} |"
            text += f" {totals.wall_us / count:10.1f}"
            if self._model is not None:
                text += f" {totals.modelled_us / count:12.3f} {totals.cpu_us / count:8.3f}"
            yield text


def _found(reader: LogReader, options: Options) -> Iterator[Transfer]:
    """Yield the wanted work requests; raises `LogError` if there are none and no HCA."""
    none = True
    for transfer in wanted_transfers(reader, options):
        none = False
        yield transfer
    devices = reader.meta["devices"]
    if none and devices and not any(model_of(device).is_adapter for device in devices):
        raise LogError(
            f"{reader.folder} has no HCA, and no request of NTRDMA in what was read: "
            "--view bridge shows stores, descriptors and doorbells"
        )


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if options.json:
        for transfer in islice(_found(reader, options), options.limit):
            yield json.dumps(view.transfer(transfer, options.model, tree=options.tree))
        return
    summary = Summary(options.model)
    found = _found(reader, options)
    first = list(islice(found, 1))  # the header is not printed before an error
    yield from header(options.model)
    for transfer in islice(chain(first, found), options.limit):
        summary.add(transfer)
        yield line(transfer, options.model)
        if options.tree:
            yield from tree(transfer, options.model)
    yield ""
    yield from summary.lines()


VIEW = View("wr", "a line for each work request", _lines, tree=True, modelled=True, failed=True)
