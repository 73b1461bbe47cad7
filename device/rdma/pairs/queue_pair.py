"""One queue pair: its context, its state, and the changes of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from bluebridge.device.fabric.messages import ConnectedPacket, Route
from bluebridge.device.fabric.sizes import size_of_packet
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.engines import CLOSED, ReceiveEngine, SendEngine
from bluebridge.device.rdma.pairs.paging import NO_PAGING, Paging
from bluebridge.device.rdma.pairs.queues import (
    Completions,
    OwnReceiveQueue,
    ReceiveQueue,
    SendQueue,
    SharedReceiveQueues,
)
from bluebridge.device.rdma.ports.counters import Diagnostics, InterfaceCounter
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.port_tables import Path
from bluebridge.device.rdma.vocabulary import (
    CONNECTED,
    DATAGRAMS,
    SERVICES,
    AsyncEvent,
    CompletionStatus,
    PairState,
    Role,
)

DEFAULT_MTU: Final = 1024
DEFAULT_LOG_MESSAGE: Final = 30
SEND_ERROR: Final = DATAGRAMS | {Role.UC}
"""Roles of queue pairs whose receive queue goes on after a failed send."""
FLUSH_BUDGET: Final = 256
"""Most receives that are flushed in one turn, whatever the number of queue pairs."""


class QueuePair(ABC):
    """One queue pair that hardware owns.

    The face sets what its context says (the attributes from `pd` to `path`) and calls `reroute`.
    `bus`, `regions`, `memory` and `completions` are what its engines work with. Whoever makes it
    attaches `engine`, `responder` and, where there are any, the queues `sq` and `rq`. `spent`
    counts what its messages cost, in bytes, until `costs.COST_LIMIT` is reached. Datagrams come
    from `shown_number`, which is 1 for a GSI queue pair whose face sends `DatagramWork`.
    """

    diagnostics: Diagnostics
    engine: SendEngine
    responder: ReceiveEngine
    route: Route

    def __init__(
        self,
        qpn: int,
        role: Role,
        *,
        bus: HostBus,
        regions: MemoryRegions,
        memory: LocalMemory,
        completions: Completions,
        srqs: SharedReceiveQueues,
        port: Port,
        traffic: InterfaceCounter,
        failed: Callable[[QueuePair], None],
    ) -> None:
        self.qpn = qpn
        self.shown_number = qpn
        self.role = role
        self.bus = bus
        self.regions = regions
        self.memory = memory
        self.completions = completions
        self.srqs = srqs
        self._failed = failed
        self.connected = role in CONNECTED
        self.state = PairState.INIT
        self.established = False
        self.last_wqe_told = False
        self.sqd_event = False
        self.spent = 0
        self.sq: SendQueue | None = None
        self.rq: OwnReceiveQueue | None = None
        self.pd = 0
        self.port = port
        self.traffic = traffic
        self.remote_qpn = 0
        self.mtu = DEFAULT_MTU
        self.max_message = 1 << DEFAULT_LOG_MESSAGE
        self.qkey = 0
        self.pkey_index = 0
        self.xrcd = 0
        self.srqn: int | None = None
        self.fast_register = False
        self.remote_read = self.remote_write = self.remote_atomic = False
        self.min_rnr_timer = 0
        self.retry_count = self.rnr_retry = 0
        self.ack_timeout = 0
        self.read_limit = self.answer_limit = 1
        self.strip_vlan = True
        self.keep_fcs = False
        self.path = Path()
        self.paging: Paging = NO_PAGING
        completions.lost = self.completions_lost
        self.count_troubles(port.diagnostics)

    def count_troubles(self, diagnostics: Diagnostics) -> None:
        """Count what goes wrong there from now on."""
        self.diagnostics = self.completions.diagnostics = diagnostics

    def take_context(self, table: Struct, context: bytes | bytearray) -> None:
        """Set what the contexts of all cards have, by the names that they give it alike."""
        get = table.get
        self.pd = get(context, "pd")
        self.remote_qpn = get(context, "remote_qpn")
        self.mtu = MTU_BYTES.get(get(context, "mtu"), DEFAULT_MTU)
        self.qkey = get(context, "qkey")
        self.pkey_index = get(context, "pri_pkey_index")
        self.remote_read = bool(get(context, "remote_read"))
        self.remote_write = bool(get(context, "remote_write"))
        self.remote_atomic = bool(get(context, "remote_atomic"))
        self.min_rnr_timer = get(context, "min_rnr_timer")
        self.retry_count = get(context, "retry_count")
        self.rnr_retry = get(context, "rnr_retry")
        self.ack_timeout = get(context, "pri_ack_timeout")
        self.read_limit = 1 << get(context, "sra_max")
        self.answer_limit = 1 << get(context, "rra_max")

    @abstractmethod
    def read_path(self, address: bytes) -> Path:
        """Return the path of a datagram to `address` (`DatagramWork.address`)."""

    def dismantle(self) -> None:
        """Take apart a queue pair in RST that nobody finds any more.

        Its parts refer to each other: without this only Python's collector would free them.
        """
        self.responder.stop()
        self.engine = CLOSED
        self.responder = ReceiveEngine()
        self.sq = self.rq = None
        self.completions.lost = _nothing

    def reroute(self) -> None:
        """Recompute the route from the addresses that the port has now."""
        self.route = self.port.connected_route(self.path, self.pkey_index)

    def send_packets(self, packets: Sequence[TransportPacket]) -> None:
        """Send packets to the connected peer in a burst, and count them."""
        burst: list[ConnectedPacket] = []
        for packet in packets:
            packet.service = SERVICES[self.role]
            count, size = size_of_packet(self.route, packet)
            self.traffic.sent(count, size)
            if packet.syndrome:
                self.diagnostics.refused(packet.syndrome)
            burst.append(ConnectedPacket(self.route, self.remote_qpn, packet, self.qpn))
        self.port.send_packets(burst)

    @property
    def receives(self) -> ReceiveQueue | None:
        """The queue that receives are taken from: its own or an SRQ; None without one."""
        return self.rq if self.srqn is None else self.srqs.get(self.srqn)

    # -- states -------------------------------------------------------------------------------

    def set_state(self, state: PairState) -> None:
        """Change the state; in RTS, entries whose doorbells came too early are carried out."""
        self.state = state
        if state is PairState.RTS and self.sq is not None:
            self.sq.go_on()

    def drain(self, *, event: bool) -> None:
        """Stop sending (state SQD); with `event`, report when nothing is outstanding any more."""
        self.set_state(PairState.SQD)
        idle = self.engine.idle
        self.sqd_event = event and not idle
        if event and idle:
            self.completions.event(AsyncEvent.SQ_DRAINED)

    def enter_error(self, event: AsyncEvent | None = None) -> None:
        """Go to ERR and flush; `event` tells software the reason unless it asked for the change.

        A completion in error, if there is one, was written before: it comes first.
        """
        if self.state is PairState.ERR and self.rq is not None:
            self._failed(self)  # who says so once more posts receives, as ib_drain_rq does
        if self.state in (PairState.ERR, PairState.RST):
            return
        self.set_state(PairState.ERR)
        if event is not None:
            self.completions.event(event)
        self.engine.abort()
        if self.sq is not None:
            self.sq.go_on()
        self.responder.abort()
        self.flush_receives(FLUSH_BUDGET)
        if self.srqn is not None and not self.last_wqe_told:
            self.last_wqe_told = True
            self.completions.event(AsyncEvent.SRQ_QP_LAST_WQE)
        if self.rq is not None:
            self._failed(self)

    def enter_send_error(self) -> None:
        """Handle a failed send: unreliable services flush only the send queue and may go on.

        InfiniBand vol. 1, 10.3.1, Send Queue Error state.
        """
        if self.role not in SEND_ERROR:
            self.enter_error()
        elif self.state in (PairState.RTS, PairState.SQD):
            self.set_state(PairState.SQER)
            self.engine.abort()
            if self.sq is not None:
                self.sq.run()

    def ring_lost(self) -> None:
        """Go to ERR with an event, because the send queue is no longer in guest memory."""
        if self.state is not PairState.ERR:
            self.completions.event(AsyncEvent.WQ_CATAS_ERROR)
            self.enter_error()

    def completions_lost(self) -> None:
        """Go to ERR with an event, because a completion queue takes no entries any more.

        InfiniBand vol. 1, 11.6.3.1: the queue pair goes to the error state, with an event.
        """
        self.enter_error(AsyncEvent.WQ_CATAS_ERROR)

    def flush_receives(self, budget: int) -> int:
        """Flush at most `budget` receives while in ERR; returns their number."""
        flushed = 0
        queue = self.rq
        if queue is not None:
            while flushed < budget and self.state is PairState.ERR and queue.waiting():
                self.completions.fail_receive(queue.drop(), CompletionStatus.WR_FLUSH_ERR)
                flushed += 1
        return flushed


def _nothing() -> None:
    pass
