"""The SQs and RQs of Ethernet, each a queue pair with one half."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.sender import EthernetSender
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import (
    QUEUE_CHANGES,
    RQC,
    SQC,
    WQ,
    WQ_OFFSET,
    QueueState,
    QueueType,
)
from bluebridge.device.layout.mlx5.objects import RqField
from bluebridge.device.layout.mlx5.wqe import BLOCK_BYTES
from bluebridge.device.mlx5.rings.completions import FrameCompletions
from bluebridge.device.mlx5.rings.page_lists import PageLists, Ring
from bluebridge.device.mlx5.rings.queue_completions import RQ_EVENT, SQ_EVENT
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.engines import ReceiveEngine, SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueue, SharedReceiveQueues
from bluebridge.device.rdma.ports.port_tables import Path
from bluebridge.device.rdma.vocabulary import PairState, Role
from bluebridge.device.rings.receive_ring import ReceiveRing

MAX_FRAME: Final = 9974
"""Bytes of the longest frame without its FCS."""
MAX_LOG_SIZE: Final = 15
LOG_STRIDES: Final = range(4, 12)
LOG_BLOCK: Final = BLOCK_BYTES.bit_length() - 1
_STATES: Final = {
    QueueState.RST: PairState.RST,
    QueueState.RDY: PairState.RTS,
    QueueState.ERR: PairState.ERR,
}


class NoSharedQueues(SharedReceiveQueues):
    """There are none for frames."""

    def get(self, srqn: int) -> SharedReceiveQueue | None:
        return None


NO_SHARED_QUEUES: Final = NoSharedQueues()


class FrameQueue(QueuePair):
    """An SQ or RQ; `context` is what software described it with, `cqn` its completion queue."""

    def __init__(self, around: Surroundings, number: int, context: bytes, kind: int) -> None:
        self.context = bytearray(context)
        table = SQC if kind == SQ_EVENT else RQC
        self.cqn = table.get(context, "cqn")
        pd = WQ.get(context, "pd", WQ_OFFSET)
        completions = FrameCompletions(
            around, number, self.cqn, kind, table.get(context, "user_index")
        )
        super().__init__(
            number,
            Role.ETHERNET,
            bus=around.bus,
            regions=around.regions,
            memory=LocalMemory(around.bus, around.regions, pd, number, reserved_lkey=False),
            completions=completions,
            srqs=NO_SHARED_QUEUES,
            port=around.port,
            traffic=around.traffic,
            failed=_ignore,
        )
        self.pd = pd
        self.state = PairState.RST
        self.engine = SendEngine()
        self.responder = ReceiveEngine()

    @property
    def queue_state(self) -> QueueState:
        """The present state in the numbers of contexts."""
        if self.state is PairState.RST:
            return QueueState.RST
        return QueueState.RDY if self.state is PairState.RTS else QueueState.ERR

    def read_path(self, address: bytes) -> Path:
        """Return an empty path: frames carry their addresses themselves."""
        return Path()

    def change(self, known: int, wanted: int) -> None:
        """Change the state; `known` is the one that software thinks it has.

        Raises `Refused`: BAD_RES_STATE for another state and for changes that there are not.
        """
        own = self.queue_state
        if known != own or (wanted != own and (own, wanted) not in QUEUE_CHANGES):
            raise Refused(Status.BAD_RES_STATE, f"queue {self.qpn:#x}: {own.name}, not {known}")
        state = QueueState(wanted)
        if state is own:
            return
        if state is QueueState.ERR:
            self.enter_error()
            return
        if state is QueueState.RST:
            self.stop()
        self.set_state(_STATES[state])

    def stop(self) -> None:
        """Go to RST: forget what was posted and is not done."""
        self.state = PairState.RST
        self.engine.stop()
        for ring in (self.sq, self.rq):
            if isinstance(ring, (SendRing, ReceiveRing)):
                ring.restart()


class SendQueueObject(FrameQueue):
    """The SQ of a network interface: its context, its entries and the sender of their frames."""

    def __init__(self, around: Surroundings, number: int, context: bytes, place: Ring) -> None:
        super().__init__(around, number, context, SQ_EVENT)
        self.engine = EthernetSender(self, MAX_FRAME, around.comes_back)
        buffer, record = place
        log_size = WQ.get(context, "log_size", WQ_OFFSET)
        page = WQ.get(context, "uar", WQ_OFFSET)
        self.ring = SendRing(
            around.bus, self, self.engine, buffer, log_size, record, around.faults, page=page
        )
        self.sq = self.ring

    def query(self) -> bytes:
        """Return the present context (QUERY_SQ)."""
        SQC.set(self.context, "state", self.queue_state)
        return bytes(self.context)


class ReceiveQueueObject(FrameQueue):
    """An RQ; `missed` counts frames that found no receive, `counter_set` where that is told."""

    def __init__(self, around: Surroundings, number: int, context: bytes, place: Ring) -> None:
        super().__init__(around, number, context, RQ_EVENT)
        buffer, record = place
        log_size = WQ.get(context, "log_size", WQ_OFFSET)
        shift = WQ.get(context, "log_stride", WQ_OFFSET)
        self.rq = ReceiveRing(around.bus, number, self.pd, buffer, 0, log_size, shift, record)
        self.counter_set = RQC.get(context, "counter_set")
        self._load()

    def _load(self) -> None:
        self.strip_vlan = not RQC.get(self.context, "no_vlan_strip")
        self.keep_fcs = bool(RQC.get(self.context, "keep_fcs"))

    def modify(self, fields: int, context: bytes) -> None:
        """Take over the chosen fields of a context (MODIFY_RQ)."""
        if fields & RqField.VLAN_STRIP:
            RQC.set(self.context, "no_vlan_strip", RQC.get(context, "no_vlan_strip"))
        if fields & RqField.KEEP_FCS:
            RQC.set(self.context, "keep_fcs", RQC.get(context, "keep_fcs"))
        if fields & RqField.COUNTER_SET:
            self.counter_set = RQC.get(context, "counter_set")
        self._load()

    def query(self) -> bytes:
        """Return the present context (QUERY_RQ)."""
        RQC.set(self.context, "state", self.queue_state)
        return bytes(self.context)


def send_place(pages: PageLists, context: bytes, listed: bytes) -> Ring:
    """Return the ring of an SQ; raises `Refused` (BAD_PARAM, BAD_RES, LIM_ERR)."""
    if WQ.get(context, "log_stride", WQ_OFFSET) != LOG_BLOCK:
        raise Refused(Status.BAD_PARAM, "the entries of an SQ are blocks of 64 bytes")
    return _place(pages, context, listed)


def receive_place(pages: PageLists, context: bytes, listed: bytes) -> Ring:
    """Return the ring of an RQ; raises `Refused` (BAD_PARAM, BAD_RES, LIM_ERR)."""
    if RQC.get(context, "memory_type"):
        raise Refused(Status.BAD_PARAM, "an RQ has entries of its own")
    kind = WQ.get(context, "type", WQ_OFFSET)
    if kind != QueueType.CYCLIC:
        raise Refused(Status.BAD_PARAM, f"receive queues of type {kind} are not offered")
    if WQ.get(context, "log_stride", WQ_OFFSET) not in LOG_STRIDES:
        raise Refused(Status.BAD_PARAM, "entries of an RQ have 16 to 2048 bytes")
    return _place(pages, context, listed)


def _place(pages: PageLists, context: bytes, listed: bytes) -> Ring:
    log_size = WQ.get(context, "log_size", WQ_OFFSET)
    if log_size > MAX_LOG_SIZE:
        raise Refused(Status.BAD_PARAM, f"a queue of 2**{log_size} entries")
    length = 1 << (log_size + WQ.get(context, "log_stride", WQ_OFFSET))
    offset = WQ.get(context, "page_offset", WQ_OFFSET)
    shift = WQ.get(context, "log_page_size", WQ_OFFSET)
    place = pages.place(WQ, context, listed, shift, offset, WQ_OFFSET)
    return Ring(pages.buffer(place, length), pages.record(WQ, context, WQ_OFFSET) & ~7)


def _ignore(pair: QueuePair) -> None:
    """Do nothing for a queue that failed: nobody posts receives without looking at it."""
