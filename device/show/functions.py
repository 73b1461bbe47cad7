"""The tables of state for each kind of function: HCA, bridge, DMA engine."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.ntb.shape import Bridging
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.show.hca import (
    CompletionQueueTable,
    CongestionTable,
    EventQueueTable,
    PortTable,
    QueuePairTable,
    RegionTable,
    SharedReceiveQueueTable,
)
from bluebridge.device.show.table import (
    Row,
    SingleTable,
    Tables,
    config_table,
    hca_registers,
    lines_of,
)


def hca_tables(hca: Hca, endpoint: Endpoint) -> Tables:
    """Return the tables of an HCA's state."""
    adapter = hca.adapter
    return {
        "qp": QueuePairTable(adapter.qps),
        "cq": CompletionQueueTable(adapter.cqs),
        "srq": SharedReceiveQueueTable(adapter.srqs),
        "eq": EventQueueTable(adapter.eqs),
        "ecn": CongestionTable(adapter.qps),
        "mr": RegionTable(adapter.regions, adapter.mpt),
        "ports": PortTable(adapter.ports, adapter.counters),
        "regs": hca_registers(hca.commands, hca.health),
        "config": config_table(endpoint),
    }


def bridge_tables(bridge: Bridging, model: BridgeModel, endpoint: Endpoint) -> Tables:
    """Return the tables of the state of one side of a bridge."""

    def registers() -> Row:
        return {"model": model.name, "lines": lines_of(bridge.state().lines)}

    def state() -> Row:
        found = bridge.state()
        windows = [window._asdict() for window in found.windows]
        row = {**found._asdict(), "model": model.name, "windows": windows}
        return {**row, "lines": lines_of(found.lines)}

    return {
        "ntb": SingleTable(state),
        "regs": SingleTable(registers),
        "config": config_table(endpoint),
    }


class ChannelTable:
    """The channels of a DMA engine, numbered from 0."""

    def __init__(self, engine: DmaEngine) -> None:
        self._engine = engine

    def numbers(self) -> Sequence[int]:
        """Return the numbers of all channels."""
        return range(len(self._engine.channels))

    def find(self, number: int) -> int | None:
        """Return `number` if there is a channel of that number, else None."""
        return number if number in self.numbers() else None

    def row(self, number: int) -> Row | None:
        """Return state, addresses and counts of a channel."""
        words = self._engine.channels[number].state_words()
        return {"channel": number, "chain": self._engine.chain_address(number), **words}


def engine_tables(engine: DmaEngine, endpoint: Endpoint) -> Tables:
    """Return the tables of a DMA engine's state."""
    return {
        "dma": ChannelTable(engine),
        "regs": SingleTable(lambda: {"model": "ioat", "lines": lines_of(engine.lines())}),
        "config": config_table(endpoint),
    }
