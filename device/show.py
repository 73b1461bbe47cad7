"""The present state of a server's functions as tables, which readers change nothing by.

Registers and config space are bytes, which the reader decodes. Queues have the context as QUERY_QP
and similar commands return it, and further state that is not in a context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.contexts import RIGHTS_SHIFT
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.device.mlx4.commands.qp_commands import card_state, context_of
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.pairs import HcaPair
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.port_tables import PortTables
from bluebridge.device.mlx4.ports.reports import properties, special_base
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueue
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveRing
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.ntb.shape import Bridging
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.rdma.memory.region import MemoryRegion
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import Direction
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rings.event_ring import EventRing
from bluebridge.device.rings.receive_ring import ReceiveRing

Row = dict[str, Any]
"""One object as values that JSON has; bytes, such as contexts, are hexadecimal digits."""

_REGION = ("window", "second_type", "fast", "physical", "free", "length", "pd",
           "page_shift", "pieces", "windows")  # fmt: skip

MOST_ROWS = 256
"""Objects of each kind that are kept; copying them takes a few milliseconds per function."""


def queue_pair_row(qp: QueuePair | None) -> Row | None:
    """Return context, service, queues and unanswered requests of a queue pair."""
    if not isinstance(qp, HcaPair):
        return None
    row: Row = {
        "lqpn": qp.qpn,
        "type": qp.role.value,
        "state": card_state(qp).name,
        "context": context_of(qp).hex(),
        **requests_of(qp),
    }
    sq, rq = qp.sq, qp.rq
    if isinstance(sq, SendRing):
        row |= {"sq-size": 1 << sq.log_size, "sq-next": sq.index, "sq-rung": sq.rung}
    if isinstance(rq, ReceiveRing):
        row |= {"rq-size": rq.mask + 1, "rq-posted": rq.head, "rq-taken": rq.index}
    return row


def requests_of(qp: QueuePair) -> Row:
    """Return the requests of a connected queue pair that wait for their answer."""
    found = qp.engine.outstanding()
    if found is None:
        return {}
    return {
        "unacked": len(found.entries),
        "oldest-unacked": found.entries[0] if found.entries else None,
        "retries": found.retries,
        "rnr-retries": found.rnr_retries,
        "waits-to-retry": found.waits,
    }


def congestion_row(qp: QueuePair | None) -> Row | None:
    """Return counts of marks and reports of a queue pair on a wire of packets, rates in Mb/s."""
    pace = None if qp is None else qp.engine.pace()
    if qp is None or pace is None:
        return None
    return {
        "lqpn": qp.qpn,
        "rqpn": qp.remote_qpn,
        "ce-seen": pace.marks,
        "cnps-sent": pace.sent,
        "cnps-received": pace.received,
        "rate": round(pace.rate, 1),
        "target": round(pace.target, 1),
        "alpha": round(pace.alpha, 3),
        "limited": pace.limited,
    }


def completion_queue_row(number: int, cq: CompletionQueue | None) -> Row | None:
    """Return the context of a completion queue, and whether it is armed."""
    if cq is None:
        return None
    return {
        "cqn": number, "context": cq.query().hex(), "cqe": cq.size, "producer": cq.producer,
        "consumer": cq.consumer, "armed": cq.armed, "broken": cq.broken,
    }  # fmt: skip


def shared_receive_queue_row(number: int, srq: SharedReceiveRing | None) -> Row | None:
    """Return the context of a shared receive queue, and the position in its list of entries."""
    if srq is None:
        return None
    return {
        "srqn": number, "context": srq.query().hex(), "size": 1 << srq.log_size,
        "posted": srq.known, "taken": srq.consumed, "next-entry": srq.current,
    }  # fmt: skip


def event_queue_row(number: int, eq: EventRing, context: bytes) -> Row:
    """Return the context of an event queue, and the events for which its ring was full."""
    return {
        "eqn": number, "context": context.hex(), "eqe": eq.size, "producer": eq.producer,
        "consumer": eq.consumer, "backlog": len(eq.backlog), "overflowed": eq.overflowed,
    }  # fmt: skip


def region_row(region: MemoryRegion, entry: bytes) -> Row:
    """Return the values of a memory region or window; `entry` is as software wrote it."""
    return {
        "lkey": region.key,
        "entry": entry.hex(),
        **{name: getattr(region, name) for name in _REGION},
        "rights": region.rights << RIGHTS_SHIFT,
        "iova": region.start,
        "window-of": None if region.parent is None else region.parent.key,
        "qpn": region.owner_qpn,
    }


def port_row(port: Port, tables: PortTables, interface: InterfaceCounters) -> Row:
    """Return link, cable, addresses and counters of a port; it shares `interface` with others."""
    counters = ((str(index), asdict(interface.of(index))) for index in range(INTERFACE_COUNTERS))
    row = {
        "port": port.number,
        "link_layer": port.link.name,
        "cable": port.cable,
        "open": port.tables.open,
        "link_up": port.link_up,
        "properties": properties(port, tables),
        **_addresses(port, tables),
        "special_qpn": special_base(port),
        "counters": {
            **direction_row("rx", port.counters.rx),
            **direction_row("tx", port.counters.tx),
            "rx_filtered": port.counters.filtered,
        },
        "rdma_counters": {index: each for index, each in counters if any(each.values())},
    }
    return row | _infiniband(port.agent) if isinstance(port, InfinibandPort) else row


def _addresses(port: Port, tables: PortTables) -> Row:
    gids = {index: gid for index, gid in enumerate(tables.gids) if gid != NO_GID}
    return {
        "mac": port.burned_in.hex(":"),
        "macs": {str(index): mac.hex(":") for index, mac in enumerate(tables.macs) if mac},
        "vlans": {str(i): vlan for i, vlan in enumerate(tables.vlans) if vlan is not None},
        "gids": {str(index): gid.hex() for index, gid in gids.items()},
        "roce_versions": {str(index): tables.roce_version(index) for index in gids},
        "mtu": tables.mtu,
        "steering": asdict(tables.receivers),
    }


def direction_row(name: str, direction: Direction) -> Row:
    """Return the counters of one direction of a port; their names begin with its own."""
    quantities = ("frames", "octets", "multicast", "broadcast")
    row = {f"{name}_{each}": sum(getattr(direction, each)) for each in quantities}
    return {**row, f"{name}_dropped": direction.dropped}


def _infiniband(agent: PortAgent) -> Row:
    """Return what the subnet manager set and what performance management counts."""
    gids = (agent.gid(index) for index in range(len(agent.guids)))
    return {
        "port_info": bytes(agent.info).hex(),
        "gids": {str(i): gid.hex() for i, gid in enumerate(gids) if any(gid)},
        "pkeys": {str(i): pkey for i, pkey in enumerate(agent.pkeys) if pkey},
        "counters": asdict(agent.counters),
    }


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


def single(make: Callable[[], Row]) -> Table:
    """Return a table of one row, which is found by any number: the reader looks for offsets."""
    return Table(lambda: (0,), lambda _: make(), lambda _: 0)


def _lines(lines: Mapping[int, bytes]) -> Row:
    return {str(offset): line.hex() for offset, line in lines.items()}


def _config(endpoint: Endpoint) -> Table:
    """Return config space, without the zeros at its end, and the sizes of BARs."""
    return single(lambda: {
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
        return None if found is None else region_row(found, entries.query(index))

    def paced(number: int) -> bool:
        qp = qps.get(number)
        return qp is not None and qp.engine.pace() is not None

    def event_queue(number: int) -> Row | None:
        eq = eqs.get(number)
        return None if eq is None else event_queue_row(number, eq, eqs.query(number))

    return {
        "qp": Table(qps.numbers, lambda qpn: queue_pair_row(qps.get(qpn))),
        "cq": Table(cqs.numbers, lambda cqn: completion_queue_row(cqn, cqs.get(cqn))),
        "srq": Table(srqs.numbers, lambda srqn: shared_receive_queue_row(srqn, srqs.get(srqn))),
        "eq": Table(eqs.numbers, event_queue),
        "ecn": Table(
            lambda: list(filter(paced, qps.numbers())),
            lambda qpn: congestion_row(qps.get(qpn)),
            lambda qpn: qpn if paced(qpn) else None,
        ),
        "mr": Table(regions.numbers, region, key),
        "ports": Table(
            lambda: [port.number for port in ports],
            lambda number: port_row(
                ports[number - 1], adapter.tables[number - 1], adapter.counters
            ),
        ),
        "regs": single(registers),
        "config": _config(endpoint),
    }


def config_tables(endpoint: Endpoint) -> Tables:
    """Return the tables of a function of which only the configuration space is told."""
    return {"config": _config(endpoint)}


def bridge_tables(bridge: Bridging, model: BridgeModel, endpoint: Endpoint) -> Tables:
    """Return the tables of the state of one side of a bridge."""

    def registers() -> Row:
        return {"model": model.name, "lines": _lines(bridge.state().lines)}

    def state() -> Row:
        found = bridge.state()
        windows = [window._asdict() for window in found.windows]
        row = {**found._asdict(), "model": model.name, "windows": windows}
        return {**row, "lines": _lines(found.lines)}

    return {"ntb": single(state), "regs": single(registers), "config": _config(endpoint)}


def engine_tables(engine: DmaEngine, endpoint: Endpoint) -> Tables:
    """Return the tables of a DMA engine's state."""

    def channel(number: int) -> Row:
        words = engine.channels[number].state_words()
        return {"channel": number, "chain": engine.chain_address(number), **words}

    return {
        "dma": Table(lambda: range(len(engine.channels)), channel),
        "regs": single(lambda: {"model": "ioat", "lines": _lines(engine.lines())}),
        "config": _config(endpoint),
    }
