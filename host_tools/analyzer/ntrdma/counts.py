"""Costs of NTRDMA's requests on the bus: descriptors, index writes, bells, interrupts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.ntrdma.work import WorkCode
from bluebridge.host_tools.analyzer.ntrdma.batches import batches
from bluebridge.host_tools.analyzer.ntrdma.requests import Batch, Publication
from bluebridge.host_tools.analyzer.ntrdma.store_text import name


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
    names = {"?" if each.op is None else name(WorkCode, each.op) for each in batch.works}
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


class CostTable:
    """Sums up the costs of batches by machine, operation and size."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], Costs] = {}

    def add(self, batch: Batch) -> None:
        """Count a batch into its row."""
        key = batch.sent.sender, operation(batch), len(batch.works)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Costs(*key)
        row.batches += 1
        row.sender = row.sender.plus(counts_of([batch.sent]))
        row.peer = row.peer.plus(counts_of(batch.own_answers))

    def rows(self) -> list[Costs]:
        """Return the rows in the order of machine, operation and size."""
        return [self._rows[key] for key in sorted(self._rows)]


def costs(folder: Path | LogReader) -> list[Costs]:
    """Sum up the costs of a log's requests, by machine, operation and size; raises `LogError`."""
    table = CostTable()
    for batch in batches(folder):
        table.add(batch)
    return table.rows()
