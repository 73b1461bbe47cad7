"""One queue pair: what its context says, its state, and what its engines must offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.mlx4.pairs.closed_engine import CLOSED
from bluebridge.device.mlx4.pairs.role import CONNECTED, DATAGRAMS, Role
from bluebridge.device.mlx4.pairs.unconnected_responder import UnconnectedResponder
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.rings.completions import Completions
from bluebridge.device.mlx4.rings.receive_queue import ReceiveQueue
from bluebridge.device.mlx4.rings.send_queue import Executor, SendQueue
from bluebridge.device.mlx4.rings.shared_receive_queues import (
    SharedReceiveQueue,
    SharedReceiveQueues,
)
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory

DEFAULT_MTU: Final = 1024
DEFAULT_LOG_MESSAGE: Final = 30
SEND_ERROR: Final = DATAGRAMS | {Role.UC}
"""Roles of queue pairs whose receive queue goes on after a failed send."""
FLUSH_BUDGET: Final = 256
"""Receives flushed in one go, whatever the number of queue pairs."""


class SendEngine(Executor, Protocol):
    """The sending half of a queue pair; which class depends on its role."""

    next_psn: int
    """PSN of the next request, as QUERY_QP tells it."""

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""

    def receive(self, response: Response) -> None:
        """An answer of the connected peer."""

    def abort(self) -> None:
        """Complete everything outstanding as flushed; forget timers."""

    def stop(self) -> None:
        """Forget everything outstanding without a trace, timers too."""

    def close(self) -> None:
        """Let go of the parts that refer to this engine: after `stop`, it is not used again."""


class ReceiveEngine(Protocol):
    """The answering half of a queue pair. `psn` is the one expected next, `msn` counts messages."""

    psn: int
    msn: int

    def receive(self, request: Request) -> None:
        """A request of the connected peer."""

    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""


class QueuePair:
    """One queue pair that hardware owns.

    `context` is the QPC as merged so far; the attributes repeat what the data path needs of it.
    `bus`, `regions`, `memory` and `completions` are what its engines work with. Whoever makes it
    attaches `engine`, `responder` and, where the context describes them, the queues `sq` and `rq`.
    `spent` counts what its messages cost, in bytes, until `send_queue.COST_LIMIT` is reached.
    """

    __slots__ = (
        "_counters", "_failed", "_ports", "_srqs", "ack_timeout", "answer_limit", "bus",
        "completions", "connected", "context", "engine", "established", "fast_register", "keep_fcs",
        "last_wqe_told", "max_message", "memory", "min_rnr_timer", "mtu", "pd", "port", "qkey",
        "qpn", "read_limit", "regions", "remote_atomic", "remote_qpn", "remote_read",
        "remote_write", "responder", "retry_count", "rnr_retry", "role", "route", "rq", "spent",
        "sq", "sqd_event", "srqn", "state", "strip_vlan", "traffic", "uar", "xrcd",
    )  # fmt: skip

    engine: SendEngine
    responder: ReceiveEngine

    def __init__(
        self,
        qpn: int,
        role: Role,
        context: bytearray,
        *,
        bus: HostBus,
        regions: MemoryRegions,
        memory: LocalMemory,
        completions: Completions,
        srqs: SharedReceiveQueues,
        ports: Sequence[Port],
        counters: InterfaceCounters,
        failed: Callable[[QueuePair], None],
    ) -> None:
        self.qpn = qpn
        self.role = role
        self.context = context
        self.bus = bus
        self.regions = regions
        self.memory = memory
        self.completions = completions
        self._srqs = srqs
        self._ports = ports
        self._counters = counters
        self._failed = failed
        self.connected = role in CONNECTED
        self.state = QpState.INIT
        self.established = False
        self.last_wqe_told = False
        self.sqd_event = False
        self.spent = 0
        self.sq: SendQueue | None = None
        self.rq: ReceiveQueue | None = None
        completions.lost = self.completions_lost
        self.load()

    def dismantle(self) -> None:
        """Take a queue pair in RST apart, which nobody finds any more.

        Its parts refer to each other: without this only Python's collector would free them.
        """
        self.engine.close()
        self.engine = CLOSED
        self.responder = UnconnectedResponder()
        self.sq = self.rq = None
        self.completions.lost = _nothing

    def load(self) -> None:
        """Take the attributes over from the context, after each transition."""
        get, context = QPC.get, self.context
        self.pd = get(context, "pd")
        self.uar = get(context, "uar")
        self.remote_qpn = get(context, "remote_qpn")
        self.mtu = MTU_BYTES.get(get(context, "mtu"), DEFAULT_MTU)
        self.max_message = 1 << (get(context, "msg_max") or DEFAULT_LOG_MESSAGE)
        self.qkey = get(context, "qkey")
        self.xrcd = get(context, "xrcd")
        self.srqn = get(context, "srqn") if get(context, "use_srq") else None
        self.fast_register = bool(get(context, "fast_reg_enable"))
        self.remote_read = bool(get(context, "remote_read"))
        self.remote_write = bool(get(context, "remote_write"))
        self.remote_atomic = bool(get(context, "remote_atomic"))
        self.min_rnr_timer = get(context, "min_rnr_timer")
        self.retry_count = get(context, "retry_count")
        self.rnr_retry = get(context, "rnr_retry")
        self.ack_timeout = get(context, "pri_ack_timeout")
        self.read_limit = 1 << get(context, "sra_max")
        self.answer_limit = 1 << get(context, "rra_max")
        self.strip_vlan = not get(context, "no_vlan_strip")
        self.keep_fcs = bool(get(context, "keep_fcs"))
        self.traffic = self._counters.of(get(context, "pri_counter_index"))
        ports, number = self._ports, get(context, "pri_port")
        self.port = ports[number] if number < len(ports) else ports[0]
        self.reroute()

    def reroute(self) -> None:
        """Take over the addresses that the port has now."""
        self.route = self.port.connected_route(self.context)

    @property
    def receives(self) -> ReceiveQueue | SharedReceiveQueue | None:
        """The queue that receive entries come from."""
        return self.rq if self.srqn is None else self._srqs.get(self.srqn)

    # -- states -------------------------------------------------------------------------------

    def set_state(self, state: QpState) -> None:
        """Change the state, in the context too; doorbells that came too early count now."""
        self.state = state
        QPC.set(self.context, "state", int(state))
        if state is QpState.RTS and self.sq is not None:
            self.sq.go_on()

    def drain(self, *, event: bool) -> None:
        """SQD: stop sending; `event` asks for one when nothing is outstanding any more."""
        self.set_state(QpState.SQD)
        idle = self.engine.idle
        self.sqd_event = event and not idle
        if event and idle:
            self.completions.event(EventType.SQ_DRAINED)

    def enter_error(self, event: EventType | None = None) -> None:
        """Go to ERR and flush; `event` tells software why, if it was not asked.

        A completion in error, if there is one, was written before: it comes first.
        """
        if self.state is QpState.ERR and self.rq is not None:
            self._failed(self)  # who says so once more posts receives, as ib_drain_rq does
        if self.state in (QpState.ERR, QpState.RST):
            return
        self.set_state(QpState.ERR)
        if event is not None:
            self.completions.event(event)
        self.engine.abort()
        if self.sq is not None:
            self.sq.go_on()
        self.responder.abort()
        self.flush_receives(FLUSH_BUDGET)
        if self.srqn is not None and not self.last_wqe_told:
            self.last_wqe_told = True
            self.completions.event(EventType.SRQ_QP_LAST_WQE)
        if self.rq is not None:
            self._failed(self)

    def enter_send_error(self) -> None:
        """After a failed send: unreliable services flush the send queue only and may go on.

        InfiniBand vol. 1, 10.3.1, Send Queue Error state.
        """
        if self.role not in SEND_ERROR:
            self.enter_error()
        elif self.state in (QpState.RTS, QpState.SQD):
            self.set_state(QpState.SQER)
            self.engine.abort()
            if self.sq is not None:
                self.sq.run()

    def ring_lost(self) -> None:
        """The send queue is no guest memory any more."""
        if self.state is not QpState.ERR:
            self.completions.event(EventType.WQ_CATAS_ERROR)
            self.enter_error()

    def completions_lost(self) -> None:
        """A completion queue is broken: work that cannot be completed is not done either.

        InfiniBand vol. 1, 11.6.3.1: the queue pair goes to the error state, with an event.
        """
        self.enter_error(EventType.WQ_CATAS_ERROR)

    def flush_receives(self, budget: int) -> int:
        """Flush at most `budget` receives while in ERR, and count them."""
        flushed = 0
        queue = self.rq
        if queue is not None:
            while flushed < budget and self.state is QpState.ERR and queue.waiting():
                self.completions.fail_receive(queue.drop(), CompletionStatus.WR_FLUSH_ERR)
                flushed += 1
        return flushed


def _nothing() -> None:
    pass
