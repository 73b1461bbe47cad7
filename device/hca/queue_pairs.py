"""Queue pairs: what their context says, and the table that finds them by number.

A queue pair's halves are engines of their own: `SendQueue` walks the ring and feeds an engine by
role (`Requester`, `DatagramSender`, `EthernetSender`); `Responder` answers connected peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bluebridge.device.fabric.messages import Datagram, Frames, Message, Request, Response, Route
from bluebridge.device.hca.commands.command import CommandError, Status
from bluebridge.device.hca.connected.requester import Requester
from bluebridge.device.hca.connected.responder import Responder
from bluebridge.device.hca.connected.xrc_responder import XrcResponder
from bluebridge.device.hca.datagrams.datagram import DatagramSender, receive_datagram
from bluebridge.device.hca.ethernet.receiver import receive_frames
from bluebridge.device.hca.ethernet.sender import EthernetSender
from bluebridge.device.hca.pairs.error_state import FailedPairs
from bluebridge.device.hca.pairs.role import CONNECTED, DATAGRAMS, Role, role_of
from bluebridge.device.hca.rings.receive_queue import ReceiveQueue
from bluebridge.device.hca.rings.ring_buffer import QueueBuffer
from bluebridge.device.hca.rings.send_queue import SendQueue
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ib.link import partitions_match
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.throttle import Throttle

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca
    from bluebridge.device.hca.ports.port import Port
    from bluebridge.device.hca.rings.shared_receive_queues import SharedReceiveQueue

QPN_MASK = 0xFFFFFF
MAX_LIVE = 1 << 16
"""Queue pairs at a time. The table cannot be the bound: Linux asks INIT_HCA for 2^18, whatever the
capabilities say, and gives up when that is refused (`mlx4/main.c: default_profile`)."""
DEFAULT_MTU = 1024
DEFAULT_LOG_MESSAGE = 30


class SendEngine(Protocol):
    """What carries out the entries of a send queue."""

    def execute(self, raw: bytes, index: int) -> None:
        """Carry out the entry `raw`, whose free-running number is `index`."""

    def blocked(self) -> bool:
        """Whether the next entry has to wait; the engine runs the queue when it need not."""

    def abort(self) -> None:
        """Complete everything outstanding as flushed; forget timers."""

    def finish(self) -> None:
        """The walk of the ring is over for now: let go what was collected on the way."""

    def stop(self) -> None:
        """Forget everything outstanding without a trace, timers too."""


class QueuePair:
    """One queue pair that hardware owns.

    `context` is the QPC as merged so far; the attributes repeat what the data path needs of it.
    `spent` counts what its messages cost, in bytes, until `send_queue.COST_LIMIT` is reached.
    Raises `CommandError` when the context cannot be carried out.
    """

    __slots__ = (
        "ack_timeout", "context", "engine", "established", "fast_register", "hca", "last_wqe_told",
        "max_message", "min_rnr_timer", "mtu", "pd", "port", "qkey", "qpn", "read_limit",
        "recv_cqn",
        "remote_atomic", "remote_qpn", "remote_read", "remote_write", "reserved_lkey", "responder",
        "retry_count", "rnr_retry", "role", "route", "rq", "send_cqn", "spent", "sq", "sqd_event",
        "srqn", "state", "strip_vlan", "traffic", "uar", "xrcd",
    )  # fmt: skip

    def __init__(self, hca: Hca, qpn: int, context: bytearray) -> None:
        self.hca = hca
        self.qpn = qpn
        self.context = context
        self.state = QpState.INIT
        self.role = role_of(hca, qpn, context)
        self.established = False
        self.last_wqe_told = False
        self.sqd_event = False
        self.spent = 0
        self.load()
        self.sq: SendQueue | None = None
        self.rq: ReceiveQueue | None = None
        if self.role is not Role.RSS:
            self._make_queues()
        self.responder = XrcResponder(self) if self.role is Role.XRC else Responder(self)
        self.engine = self._make_engine()

    def load(self) -> None:
        """Take the attributes over from the context, after each transition."""
        get, context = QPC.get, self.context
        self.pd = get(context, "pd")
        self.uar = get(context, "uar")
        self.send_cqn = get(context, "cqn_send")
        self.recv_cqn = get(context, "cqn_recv")
        self.remote_qpn = get(context, "remote_qpn")
        self.mtu = MTU_BYTES.get(get(context, "mtu"), DEFAULT_MTU)
        self.max_message = 1 << (get(context, "msg_max") or DEFAULT_LOG_MESSAGE)
        self.qkey = get(context, "qkey")
        self.xrcd = get(context, "xrcd")
        self.srqn = get(context, "srqn") if get(context, "use_srq") else None
        self.reserved_lkey = bool(get(context, "reserved_lkey"))
        self.fast_register = bool(get(context, "fast_reg_enable"))
        self.remote_read = bool(get(context, "remote_read"))
        self.remote_write = bool(get(context, "remote_write"))
        self.remote_atomic = bool(get(context, "remote_atomic"))
        self.min_rnr_timer = get(context, "min_rnr_timer")
        self.retry_count = get(context, "retry_count")
        self.rnr_retry = get(context, "rnr_retry")
        self.ack_timeout = get(context, "pri_ack_timeout")
        self.read_limit = 1 << get(context, "sra_max")
        self.strip_vlan = not get(context, "no_vlan_strip")
        self.port = self._port()
        self.route = self.port.connected_route(context)
        self.traffic = self.hca.counters.of(get(context, "pri_counter_index"))

    def _port(self) -> Port:
        """The port of the path."""
        ports = self.hca.ports
        number = QPC.get(self.context, "pri_port")
        return ports[number] if number < len(ports) else ports[0]

    def _has_receive_queue(self) -> bool:
        """Whether the context describes a receive queue.

        Without one its size byte and doorbell record may be anything: drivers leave garbage.
        """
        get, context = QPC.get, self.context
        if self.srqn is not None or not get(context, "doorbell_record"):
            return False
        sized = get(context, "log_rq_size") or get(context, "log_rq_stride")
        return self.role is not Role.ETHERNET or bool(sized)

    def _make_queues(self) -> None:
        """Find both rings in the one buffer: the one with the longer entries is first."""
        get, context = QPC.get, self.context
        log_sq, sq_shift = get(context, "log_sq_size"), get(context, "log_sq_stride") + 4
        log_rq, rq_shift = get(context, "log_rq_size"), get(context, "log_rq_stride") + 4
        receives = self._has_receive_queue()
        sq_bytes, rq_bytes = 1 << (log_sq + sq_shift), (1 << (log_rq + rq_shift)) * receives
        sq_base, rq_base = (rq_bytes, 0) if receives and rq_shift > sq_shift else (0, sq_bytes)
        buffer = QueueBuffer.from_mtt(
            self.hca,
            get(context, "mtt_addr"),
            get(context, "log_page_size") + 12,
            sq_bytes + rq_bytes,
        )
        self.sq = SendQueue(self, buffer, sq_base, log_sq, sq_shift)
        if receives:
            record = get(context, "doorbell_record") & ~3
            self.rq = ReceiveQueue(
                self.hca, self.qpn, self.pd, buffer, rq_base, log_rq, rq_shift, record
            )

    def _make_engine(self) -> SendEngine:
        if self.role in CONNECTED:
            return Requester(self)
        if self.role in DATAGRAMS:
            return DatagramSender(self)
        return EthernetSender(self)

    @property
    def receives(self) -> ReceiveQueue | SharedReceiveQueue | None:
        """The queue that receive entries come from."""
        return self.rq if self.srqn is None else self.hca.srqs.get(self.srqn)

    def set_state(self, state: QpState) -> None:
        """Change the state, in the context too; doorbells that came too early count now."""
        self.state = state
        QPC.set(self.context, "state", int(state))
        if state is QpState.RTS and self.sq is not None:
            self.sq.go_on()


class QueuePairs:
    """The queue pairs of one HCA, by their full 24-bit number; `failed` are those in ERR."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._pairs: dict[int, QueuePair] = {}
        self._indices: dict[int, int] = {}  # index in the context table to full number
        self._strangers = Throttle()
        self.failed = FailedPairs(hca.bus)

    def __len__(self) -> int:
        return len(self._pairs)

    def all(self) -> list[QueuePair]:
        """Every queue pair that hardware owns now."""
        return list(self._pairs.values())

    def reset(self) -> None:
        """Forget all queue pairs; no completion and no DMA of theirs from now on."""
        for qp in self.all():
            self.destroy(qp.qpn)

    def get(self, qpn: int) -> QueuePair | None:
        """The queue pair with exactly this number, generation bits included."""
        return self._pairs.get(qpn)

    def create(self, qpn: int, context: bytearray) -> QueuePair:
        """RST2INIT; raises `CommandError`.

        BAD_QP_STATE, BAD_PARAM, BAD_RES_STATE, ICM_ERROR; EXCEED_LIM when there are `MAX_LIVE`.
        """
        index = qpn & (1 << self._hca.parameters.log_qps) - 1
        if qpn in self._pairs:
            raise CommandError(Status.BAD_QP_STATE, f"QP {qpn:#x} is not in RST")
        if index in self._indices:
            raise CommandError(Status.BAD_RES_STATE, f"QP {self._indices[index]:#x} has this slot")
        if len(self._pairs) >= MAX_LIVE:
            raise CommandError(Status.EXCEED_LIM, f"{MAX_LIVE} queue pairs are in use")
        qp = QueuePair(self._hca, qpn, context)
        self._pairs[qpn] = qp
        self._indices[index] = qpn
        qp.set_state(QpState.INIT)
        return qp

    def destroy(self, qpn: int) -> None:
        """2RST: forget a queue pair at once and for good."""
        qp = self._pairs.pop(qpn, None)
        if qp is None:
            return
        self._indices.pop(qpn & (1 << self._hca.parameters.log_qps) - 1, None)
        self.failed.remove(qpn)
        qp.state = QpState.RST
        qp.engine.stop()
        self._hca.regions.forget_queue_pair(qpn)

    def doorbell(self, page: int, qpn: int) -> None:
        """A send doorbell on a UAR page: walk the ring, if it is there and the page is its own."""
        qp = self._pairs.get(qpn)
        if qp is not None and qp.sq is not None and qp.uar == page:
            qp.sq.ring()

    def receive(self, port: Port, message: Message) -> int:
        """A message of a port's fabric for one of the queue pairs, or for none.

        Returns the copies made of a datagram to a group or of frames, see `FabricPort.receive`.
        """
        if isinstance(message, Request):
            qp = self._pairs.get(message.target_qpn)
            if qp is not None and isinstance(qp.engine, Requester):
                route, own = message.route, qp.route
                if (
                    route.smac == own.dmac
                    and route.sgid == own.dgid
                    and qp.port is port
                    and (route.pkey == own.pkey or partitions_match(route.pkey, own.pkey))
                ):
                    qp.responder.receive(message)
                else:
                    self._stranger(qp, route)
        elif isinstance(message, Response):
            qp = self._pairs.get(message.target_qpn)
            if qp is not None and isinstance(qp.engine, Requester):
                route, own = message.route, qp.route
                if (
                    route.smac == own.dmac
                    and route.sgid == own.dgid
                    and qp.port is port
                    and (route.pkey == own.pkey or partitions_match(route.pkey, own.pkey))
                ):
                    qp.engine.receive(message)
                else:
                    self._stranger(qp, route)
        elif isinstance(message, Datagram):
            return receive_datagram(self._hca, port, message)
        elif isinstance(message, Frames):
            return receive_frames(self._hca, port, message)
        return 0

    def _stranger(self, qp: QueuePair, route: Route) -> None:
        """A message for a connection from someone who is not its peer: dropped, and noted.

        Queue pair numbers, PSNs and keys are not secrets; the path in the context says who the
        peer is (InfiniBand vol. 1, 9.6.1.2).
        """
        if qp.state is not QpState.INIT and self._strangers.admits():
            self._hca.bus.note(
                Kind.NOTE,
                f"QP {qp.qpn:#x}: dropped a message of {route.smac.hex(':')}, not its peer "
                f"({self._strangers.count} so far)",
                obj=qp.qpn,
            )


def empty_context(qpn: int) -> bytes:
    """The context of a queue pair in RST, as QUERY_QP shows it."""
    return bytes(QPC.pack(local_qpn=qpn))
