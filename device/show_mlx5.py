"""What a ConnectX-5 holds now, as rows that nothing is changed by."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.contexts import WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.event_queues import EQC
from bluebridge.device.layout.mlx5.init_segment import SEGMENT_SIZE
from bluebridge.device.layout.mlx5.queue_pairs import QPC, Receives
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.mlx5.objects.pairs import CardPair
from bluebridge.device.mlx5.rings.frame_queues import FrameQueue
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.rings.shared_queues import NO_CQ
from bluebridge.device.mlx5.steering.tables import FlowTable
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.rings.completion_ring import FOR_ANY, FOR_SOLICITED, NOT_ARMED
from bluebridge.device.rings.receive_ring import ReceiveRing
from bluebridge.device.show import (
    Row,
    Table,
    Tables,
    config_tables,
    direction_row,
    region_row,
    requests_of,
    single,
)

_ARMED = {NOT_ARMED: "no", FOR_ANY: "next", FOR_SOLICITED: "solicited"}
_ACCESS = ("remote_read", "remote_write", "remote_atomic")
_DESTINATIONS = {1: "ft", 2: "tir"}
MOST_ENTRIES = 64
"""Entries of a flow table that its row has."""
LINE = 64
"""Bytes of registers that a row has together."""


def adapter_tables(hca: Hca, endpoint: Endpoint) -> Tables:
    """Return the tables of the state of an adapter."""
    adapter = hca.adapter
    objects, eqs = adapter.objects, adapter.eqs
    cqs, flows, regions = objects.cqs, objects.flows, objects.keys.regions
    rdma = objects.rdma

    def event_queue(number: int) -> Row | None:
        queue = eqs.get(number)
        if queue is None:
            return None
        return {
            "eqn": number, "eqe": queue.size, "producer": queue.producer,
            "consumer": queue.consumer, "vector": queue.vector,
            "state": "armed" if queue.armed else "fired", "backlog": len(queue.backlog),
            "overflowed": queue.overflowed, "uar": EQC.get(queue.context, "uar_page"),
        }  # fmt: skip

    def queue_pair(number: int) -> Row | None:
        made, found = rdma.made.get(number), rdma.pairs.get(number)
        if made is None:
            return None
        pair = found if isinstance(found, CardPair) else None
        context = made.context if pair is None else pair.query()
        row = {
            "lqpn": number, "type": made.role.value, "state": rdma.state(number).name,
            "page-faults": rdma.page_faults.of_pair(number), **_context_of_pair(context),
        }  # fmt: skip
        return row if pair is None else row | _rings_of_pair(pair) | requests_of(pair)

    def shared_queue(number: int) -> Row | None:
        found = rdma.srqs.get(number)
        if found is None:
            return None
        return {
            "srqn": number, "pdn": found.pd, "cqn": None if found.cqn == NO_CQ else found.cqn,
            "xrcdn": found.xrcd or None, "size": 1 << found.log_size, "posted": found.known,
            "taken": found.consumed, "next-entry": found.current, "limit": found.limit,
            "doorbell-record": found.record,
        }  # fmt: skip

    def completion_queue(number: int) -> Row | None:
        queue = cqs.get(number)
        if queue is None:
            return None
        return {
            "cqn": number, "cqe": queue.size, "producer": queue.producer,
            "consumer": queue.consumer, "armed": _ARMED[queue.armed],
            "state": "broken" if queue.broken else "valid", "eqn": queue.eqn,
            "period": queue.period, "max-count": queue.max_count,
            "doorbell-record": queue.record,
        }  # fmt: skip

    def region(index: int) -> Row | None:
        found = regions.get(index)
        return None if found is None else region_row(found, b"")

    def key(number: int) -> int | None:
        found = regions.find(number)
        return None if found is None else found.index

    def registers() -> Row:
        found = {at: hca.segment.read(at, LINE) for at in range(0, SEGMENT_SIZE, LINE)}
        lines = {str(at): line.hex() for at, line in found.items() if any(line)}
        return {"model": "mlx5", "lines": lines, "failed": hca.failed}

    def tir(number: int) -> Row | None:
        found = objects.tirs.get(number)
        if found is None:
            return None
        table = None if found.direct or found.table is None else found.table.queues
        queues = [found.rqn] if table is None else sorted(set(table))
        return {
            "tirn": number, "type": "direct" if table is None else "spread",
            "rqns": [f"{queue:#x}" for queue in queues], "loopback": found.loopback,
        }  # fmt: skip

    def queue_table(number: int) -> Row | None:
        found = objects.queue_tables.get(number)
        if found is None:
            return None
        queues = [f"{queue:#x}" for queue in sorted(set(found.queues))]
        return {"rqtn": number, "size": len(found.queues), "rqns": queues}

    def flow_table(number: int) -> Row | None:
        found = flows.find(number)
        return None if found is None else _flow_table(found, root=flows.root == number)

    def port(number: int) -> Row:
        port = objects.port
        return {
            "port": port.number, "link_layer": "Ethernet", "cable": "in" if port.cable else "out",
            "state": "ACTIVE" if port.link_up else "DOWN", "opened": port.tables.open,
            "mtu": objects.registers.mtu, "mac": port.burned_in.hex(":"),
            "mac-table": sorted(mac.hex(":") for mac in port.mac_addresses),
            "counters": {
                **direction_row("rx", port.counters.rx),
                **direction_row("tx", port.counters.tx),
                "rx_filtered": port.counters.filtered,
            },
        }  # fmt: skip

    return {
        "qp": Table(lambda: list(rdma.made), queue_pair),
        "srq": Table(rdma.srqs.numbers, shared_queue),
        "eq": Table(eqs.numbers, event_queue),
        "cq": Table(cqs.numbers, completion_queue),
        "sq": Table(lambda: list(objects.sqs), lambda n: _queue(objects.sqs.get(n))),
        "rq": Table(lambda: list(objects.rqs), lambda n: _queue(objects.rqs.get(n))),
        "mr": Table(regions.numbers, region, key),
        "tir": Table(lambda: list(objects.tirs), tir),
        "rqt": Table(lambda: list(objects.queue_tables), queue_table),
        "ft": Table(lambda: [table.number for table in flows.tables()], flow_table),
        "ports": Table(lambda: [objects.port.number], port),
        "objects": single(
            lambda: {**objects.counts(), "eq": len(eqs.numbers()), "pages": adapter.pages.count}
        ),
        "regs": single(registers),
        **config_tables(endpoint),
    }


def _context_of_pair(context: bytes) -> Row:
    """Return fields of the context of a queue pair."""
    get = QPC.get
    shared = get(context, "rq_type") == Receives.SHARED
    return {
        "rqpn": get(context, "remote_qpn") or None,
        "path-mtu": MTU_BYTES.get(get(context, "mtu")),
        "rq-psn": get(context, "next_recv_psn"), "sq-psn": get(context, "next_send_psn"),
        "pdn": get(context, "pd"), "scqn": get(context, "cqn_send"),
        "rcqn": get(context, "cqn_recv"), "srqn": get(context, "srqn") if shared else None,
        "timeout": get(context, "pri_ack_timeout"), "retry-cnt": get(context, "retry_count"),
        "rnr-retry": get(context, "rnr_retry"), "min-rnr-timer": get(context, "min_rnr_timer"),
        "access": [name.upper() for name in _ACCESS if get(context, name)],
        "sgid-index": get(context, "pri_source"), "gid": QPC.get_raw(context, "pri_rgid").hex(),
        "dmac": QPC.get_raw(context, "pri_rmac").hex(":"), "qkey": get(context, "qkey"),
        "xrcdn": get(context, "xrcd"), "uar": get(context, "uar"),
        "counter": get(context, "counter_set"), "fast-reg": bool(get(context, "fast_register")),
        "user-index": get(context, "user_index"),
        "rq-record": get(context, "doorbell_record"),
    }  # fmt: skip


def _rings_of_pair(pair: CardPair) -> Row:
    """Return how far the rings of a queue pair are."""
    row: Row = {}
    if isinstance(pair.sq, SendRing):
        ring = pair.sq
        row |= {"sq-size": 1 << ring.log_size, "sq-next": ring.index, "sq-posted": ring.head}
    if isinstance(pair.rq, ReceiveRing):
        taken = pair.rq
        row |= {"rq-size": taken.mask + 1, "rq-posted": taken.head, "rq-taken": taken.index}
    return row


def _queue(queue: FrameQueue | None) -> Row | None:
    """Return the row of an SQ or RQ."""
    if queue is None:
        return None
    row: Row = {
        "number": queue.qpn, "state": queue.queue_state.name, "cqn": queue.cqn, "pdn": queue.pd,
        "doorbell-record": WQ.get(queue.context, "doorbell_record", WQ_OFFSET),
    }  # fmt: skip
    if isinstance(queue.sq, SendRing):
        ring = queue.sq
        row |= {"size": 1 << ring.log_size, "posted": ring.head, "done": ring.index}
    if isinstance(queue.rq, ReceiveRing):
        taken = queue.rq
        row |= {"size": taken.mask + 1, "posted": taken.head, "done": taken.index}
        row |= {"strip-vlan": queue.strip_vlan}
    return row


def _flow_table(table: FlowTable, *, root: bool) -> Row:
    entries = sorted(table.entries.values())[:MOST_ENTRIES]
    return {
        "table": table.number, "level": table.level, "size": 1 << table.log_size, "root": root,
        "miss": table.miss, "groups": len(table.groups), "entries": len(table.entries),
        "to": {
            str(entry.index): [
                f"{_DESTINATIONS.get(kind, kind)} {number:#x}"
                for kind, number in entry.destinations
            ] or ["drop"]
            for entry in entries
        },
    }  # fmt: skip
