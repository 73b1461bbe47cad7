"""The present state of a server's functions as tables, which readers change nothing by.

Registers and config space are bytes, which the reader decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.ntb.shape import Bridging
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.show import hca as rows
from bluebridge.device.show.hca import Row

MOST_ROWS = 256
"""Objects of each kind that are kept; copying them takes a few milliseconds per function."""


@dataclass(frozen=True, slots=True)
class Table:
    """The objects of one kind of one function; nothing is changed, and no guest memory read.

    `numbers` returns the numbers for `row` of all objects, as they are at this moment; `row` the
    object, or None when it is gone; `lookup` the number for `row` of the object that software calls
    by a number, where that is another one.
    """

    numbers: Callable[[], Sequence[int]]
    row: Callable[[int], Row | None]
    lookup: Callable[[int], int | None] | None = None

    def find(self, number: int) -> int | None:
        """Return the number for `row` of the object that software calls `number`, or None."""
        if self.lookup is not None:
            return self.lookup(number)
        return number if number in self.numbers() else None


Tables = Mapping[str, Table]
"""The tables of one function, by the word that `bluebridge show` uses for their kind."""


def kept(tables: Tables) -> Tables:
    """Return tables of what a function holds now, which is not found by number later.

    A guest that panicked takes its QEMU with it, and the function is reset.
    """
    return {what: _kept(table) for what, table in tables.items()}


def _kept(table: Table) -> Table:
    found = [row for row in map(table.row, islice(table.numbers(), MOST_ROWS)) if row is not None]
    return Table(lambda: range(len(found)), found.__getitem__, lambda _: None)


def _single(make: Callable[[], Row]) -> Table:
    """Return a table of one row, which is found by any number: the reader looks for offsets."""
    return Table(lambda: (0,), lambda _: make(), lambda _: 0)


def _lines(lines: Mapping[int, bytes]) -> Row:
    return {str(offset): line.hex() for offset, line in lines.items()}


def _config(endpoint: Endpoint) -> Table:
    """Return config space, without the zeros at its end, and the sizes of BARs."""
    return _single(lambda: {
        "config": endpoint.config_snapshot().rstrip(b"\0").hex(),
        "bars": {str(bar.index): bar.size for bar in endpoint.bars},
    })  # fmt: skip


def hca_tables(hca: Hca, endpoint: Endpoint) -> Tables:
    """Return the tables of an HCA's state."""
    adapter, health = hca.adapter, hca.health
    qps, cqs, srqs, eqs = adapter.qps, adapter.cqs, adapter.srqs, adapter.eqs
    ports, regions, entries = adapter.ports, adapter.regions, adapter.mpt

    def registers() -> Row:
        lines = {
            bar0.HCR_BASE: hca.commands.read(0, bar0.HCR.size),
            bar0.CATAS_OFFSET: health.read(bar0.CATAS_OFFSET, bar0.CATAS.size),
        }
        return {"model": "hca", "lines": _lines(lines), "failed": health.failed}

    def key(number: int) -> int | None:  # its low byte changes with each use
        region = regions.find(number)
        return None if region is None else region.index

    def region(index: int) -> Row | None:
        found = regions.get(index)
        return None if found is None else rows.region(found, entries.query(index))

    def event_queue(number: int) -> Row | None:
        eq = eqs.get(number)
        return None if eq is None else rows.event_queue(number, eq, eqs.query(number))

    return {
        "qp": Table(qps.numbers, lambda qpn: rows.queue_pair(qps.get(qpn))),
        "cq": Table(cqs.numbers, lambda cqn: rows.completion_queue(cqn, cqs.get(cqn))),
        "srq": Table(srqs.numbers, lambda srqn: rows.shared_receive_queue(srqn, srqs.get(srqn))),
        "eq": Table(eqs.numbers, event_queue),
        "ecn": Table(
            lambda: [qpn for qpn in qps.numbers() if rows.congestion(qps.get(qpn))],
            lambda qpn: rows.congestion(qps.get(qpn)),
        ),
        "mr": Table(regions.numbers, region, key),
        "ports": Table(
            lambda: [port.number for port in ports],
            lambda number: rows.port(ports[number - 1], adapter.counters),
        ),
        "regs": _single(registers),
        "config": _config(endpoint),
    }


def bridge_tables(bridge: Bridging, model: BridgeModel, endpoint: Endpoint) -> Tables:
    """Return the tables of the state of one side of a bridge."""

    def registers() -> Row:
        return {"model": model.name, "lines": _lines(bridge.state().lines)}

    def state() -> Row:
        found = bridge.state()
        windows = [window._asdict() for window in found.windows]
        row = {**found._asdict(), "model": model.name, "windows": windows}
        return {**row, "lines": _lines(found.lines)}

    return {"ntb": _single(state), "regs": _single(registers), "config": _config(endpoint)}


def engine_tables(engine: DmaEngine, endpoint: Endpoint) -> Tables:
    """Return the tables of a DMA engine's state."""

    def channel(number: int) -> Row:
        words = engine.channels[number].state_words()
        return {"channel": number, "chain": engine.chain_address(number), **words}

    return {
        "dma": Table(lambda: range(len(engine.channels)), channel),
        "regs": _single(lambda: {"model": "ioat", "lines": _lines(engine.lines())}),
        "config": _config(endpoint),
    }
