"""Rows that describe queues, ports, memory regions and congestion of an HCA.

Queues have the context as QUERY_QP and similar commands return it, and further state that is not in
a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx4.commands.qp_commands import card_state, context_of
from bluebridge.device.mlx4.memory.protection_table import ProtectionTable
from bluebridge.device.mlx4.pairs import HcaPair
from bluebridge.device.mlx4.ports.reports import properties, special_base
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.receive_queues import ReceiveRing, SharedReceiveRings
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.rdma.by_packets.congestion import LAB
from bluebridge.device.rdma.by_packets.sender import PacketSender
from bluebridge.device.rdma.connected.requester import Requester
from bluebridge.device.rdma.memory.region import MemoryRegion
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import Direction, InterfaceCounters
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.queue_pairs import QueuePairs
from bluebridge.device.show.table import Row


class QueuePairTable:
    """The queue pairs of an HCA, by QPN."""

    def __init__(self, qps: QueuePairs) -> None:
        self._qps = qps

    def numbers(self) -> Sequence[int]:
        """Return all QPNs."""
        return self._qps.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a queue pair of that QPN, else None."""
        return None if self._qps.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return context, service, queues and unanswered requests of a queue pair."""
        qp = self._qps.get(number)
        if not isinstance(qp, HcaPair):
            return None
        row: Row = {
            "lqpn": number,
            "type": qp.role.value,
            "state": card_state(qp).name,
            "context": context_of(qp).hex(),
            **_requests(qp),
        }
        if isinstance(qp.sq, SendRing):
            row["sq"] = {"size": 1 << qp.sq.log_size, "next": qp.sq.index, "rung": qp.sq.rung}
        if isinstance(qp.rq, ReceiveRing):
            row["rq"] = {
                "size": qp.rq.mask + 1, "producer": qp.rq.head, "consumer": qp.rq.index
            }  # fmt: skip
        return row


def _requests(qp: QueuePair) -> Row:
    """Return the requests of a connected queue pair that wait for their answer."""
    engine = qp.engine
    if isinstance(engine, PacketSender):
        numbers = engine.unanswered
        retries, rnr_retries, waits = engine.repetitions
        return {
            "unacked": len(numbers),
            "oldest_unacked": numbers[0] if numbers else None,
            "retries": retries,
            "rnr_retries": rnr_retries,
            "waits_to_retry": waits,
        }
    if not isinstance(engine, Requester):
        return {}
    pending = engine.pending
    return {
        "unacked": len(pending),
        "oldest_unacked": pending[0].index if pending else None,
        "retries": engine.retry.retries,
        "rnr_retries": engine.retry.rnr_retries,
        "waits_to_retry": engine.retry.waiting,
    }


class CompletionQueueTable:
    """The completion queues of an HCA, by CQN."""

    def __init__(self, cqs: CompletionQueues) -> None:
        self._cqs = cqs

    def numbers(self) -> Sequence[int]:
        """Return all CQNs."""
        return self._cqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a completion queue of that CQN, else None."""
        return None if self._cqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of a completion queue, and whether it is armed."""
        cq = self._cqs.get(number)
        if cq is None:
            return None
        return {
            "cqn": number, "context": cq.query().hex(), "size": cq.size, "producer": cq.producer,
            "consumer": cq.consumer, "armed": cq.armed, "broken": cq.broken,
        }  # fmt: skip


class SharedReceiveQueueTable:
    """The shared receive queues of an HCA, by SRQN."""

    def __init__(self, srqs: SharedReceiveRings) -> None:
        self._srqs = srqs

    def numbers(self) -> Sequence[int]:
        """Return all SRQNs."""
        return self._srqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a shared receive queue of that SRQN, else None."""
        return None if self._srqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of a shared receive queue, and the position in its list of entries."""
        srq = self._srqs.get(number)
        if srq is None:
            return None
        return {
            "srqn": number, "context": srq.query().hex(), "size": 1 << srq.log_size,
            "producer": srq.known, "consumer": srq.consumed, "next_entry": srq.current,
        }  # fmt: skip


class EventQueueTable:
    """The event queues of an HCA, by EQN."""

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs

    def numbers(self) -> Sequence[int]:
        """Return all EQNs."""
        return self._eqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is an event queue of that EQN, else None."""
        return None if self._eqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of an event queue, and the events for which its ring was full."""
        eq = self._eqs.get(number)
        if eq is None:
            return None
        return {
            "eqn": number, "context": self._eqs.query(number).hex(), "size": eq.size,
            "producer": eq.producer, "consumer": eq.consumer, "backlog": len(eq.backlog),
            "overflowed": eq.overflowed,
        }  # fmt: skip


class CongestionTable:
    """The connected queue pairs of an HCA, by QPN; none where messages travel whole."""

    def __init__(self, qps: QueuePairs) -> None:
        self._qps = qps

    def numbers(self) -> Sequence[int]:
        """Return the QPNs."""
        return [number for number in self._qps.numbers() if self._engine(number) is not None]

    def find(self, number: int) -> int | None:
        """Return `number` if there is such a queue pair, else None."""
        return None if self._engine(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return counts of marks and reports, and the rate in Mb/s."""
        qp, engine = self._qps.get(number), self._engine(number)
        if qp is None or engine is None:
            return None
        seen, pacer = engine.congestion, engine.pacer
        control = None if pacer is None else pacer.control
        return {
            "lqpn": number,
            "rqpn": qp.remote_qpn,
            "ce-seen": seen.marks,
            "cnps-sent": seen.sent,
            "cnps-received": seen.received,
            "rate": LAB.line_rate if control is None else round(control.rate, 1),
            "target": LAB.line_rate if control is None else round(control.target, 1),
            "alpha": 0.0 if control is None else round(control.alpha, 3),
            "limited": control is not None and control.limited,
        }

    def _engine(self, number: int) -> PacketSender | None:
        qp = self._qps.get(number)
        return qp.engine if qp is not None and isinstance(qp.engine, PacketSender) else None


_QUANTITIES = ("frames", "octets", "multicast", "broadcast")


class PortTable:
    """The ports of an HCA, numbered from 1.

    `counters` are the interface counters of its queue pairs.
    """

    def __init__(self, ports: Sequence[Port], counters: InterfaceCounters) -> None:
        self._ports = ports
        self._counters = counters

    def numbers(self) -> Sequence[int]:
        """Return the numbers of all ports."""
        return [port.number for port in self._ports]

    def find(self, number: int) -> int | None:
        """Return `number` if there is a port of that number, else None."""
        return number if number in self.numbers() else None

    def row(self, number: int) -> Row | None:
        """Return link, cable, addresses and counters of a port."""
        port = self._ports[number - 1]
        row = {
            "port": number,
            "link_layer": port.link.name,
            "cable": port.cable,
            "open": port.tables.open,
            "link_up": port.link_up,
            "properties": properties(port),
            **_addresses(port),
            "special_qpn": special_base(port),
            "counters": _frames(port),
            "rdma_counters": self._rdma(),
        }
        return row | _infiniband(port.agent) if isinstance(port, InfinibandPort) else row

    def _rdma(self) -> Row:
        """Return the interface counters that are not zero, by index; all ports share them."""
        counters = ((index, self._counters.of(index)) for index in range(INTERFACE_COUNTERS))
        rows = ((str(index), asdict(counter)) for index, counter in counters)
        return {index: values for index, values in rows if any(values.values())}


def _addresses(port: Port) -> Row:
    tables = port.tables
    return {
        "mac": port.burned_in.hex(":"),
        "macs": {str(index): mac.hex(":") for index, mac in enumerate(tables.macs) if mac},
        "vlans": {str(i): vlan for i, vlan in enumerate(tables.vlans) if vlan is not None},
        "gids": {str(i): gid.hex() for i, gid in enumerate(port.gids) if gid != NO_GID},
        "roce_versions": {
            str(i): tables.roce_version(i) for i, gid in enumerate(port.gids) if gid != NO_GID
        },
        "mtu": tables.mtu,
        "steering": asdict(tables.steering),
    }


def _frames(port: Port) -> Row:
    """Return the counters of Ethernet frames in both directions."""
    counters = port.counters
    row = {**_direction("rx", counters.rx), **_direction("tx", counters.tx)}
    return {**row, "rx_filtered": counters.filtered}


def _direction(name: str, direction: Direction) -> Row:
    row = {f"{name}_{each}": sum(getattr(direction, each)) for each in _QUANTITIES}
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


class RegionTable:
    """The memory protection table (MPT) of an HCA.

    Its entries are numbered by index; software knows a region by its key.
    """

    def __init__(self, regions: MemoryRegions, table: ProtectionTable) -> None:
        self._regions = regions
        self._table = table

    def numbers(self) -> Sequence[int]:
        """Return all indices."""
        return self._regions.numbers()

    def find(self, number: int) -> int | None:
        """Return the index for a key.

        The low byte of the key is ignored, since it changes with each use.
        """
        region = self._regions.find(number)
        return None if region is None else region.index

    def row(self, number: int) -> Row | None:
        """Return the present values of an entry; `entry` is the entry as software wrote it."""
        region = self._regions.get(number)
        return None if region is None else _row(region, self._table.query(number))


def _row(region: MemoryRegion, entry: bytes) -> Row:
    parent = region.parent
    return {
        "lkey": region.key,
        "entry": entry.hex(),
        "window": region.window,
        "second_type": region.second_type,
        "fast": region.fast,
        "physical": region.physical,
        "free": region.free,
        "iova": region.start,
        "length": region.length,
        "rights": region.rights,
        "pd": region.pd,
        "page_shift": region.page_shift,
        "pieces": region.pieces,
        "windows": region.windows,
        "parent": None if parent is None else parent.key,
        "qpn": region.owner_qpn,
    }
