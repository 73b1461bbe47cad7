"""The requester of a connected queue pair: sends requests, completes them in order.

Rules: InfiniBand vol. 1, 9.7.5 and 9.9.2. Messages are whole, so a request is answered as one;
PSNs still advance by the packets the path MTU makes of it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Payload, Request, Response
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.contexts import QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.device.layout.net.roce import PSN_MASK
from bluebridge.device.mlx4.connected import local_operations
from bluebridge.device.mlx4.connected.part_sender import PartSender
from bluebridge.device.mlx4.connected.request_tables import (
    HALF,
    NAK_STATUS,
    OPS,
    UNRELIABLE,
    packets_of,
)
from bluebridge.device.mlx4.connected.retry import Retry
from bluebridge.device.mlx4.pairs.costs import MESSAGE_COST, PIECE_COST, WHOLE_BYTES
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.pairs.role import RELIABLE, Role
from bluebridge.device.mlx4.rings.work_requests import (
    ATOMICS,
    LOCAL,
    RDMA_READ,
    SendWqe,
    WqeError,
    parse_connected,
)
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.rights import AccessError
from bluebridge.device.rdma.memory.transfer import note_runs

WINDOW: Final = 128
"""Requests that may wait for an answer at once."""

ATOMIC_SIZE: Final = 8
_KIND: Final = 0x60  # of a syndrome: ACK, RNR NAK or NAK


class Requester:
    """Requests of one queue pair. `pending` are those unanswered, oldest first.

    `next_psn` is the PSN of the next request. A request that fails locally waits in `pending`
    until the ones before it are done, since completions come in order.

    The fabric answers at once, an adapter would not have the answer to one read before it sends the
    next of the same walk of the ring. `_burst` counts those that would be under way together.
    """

    __slots__ = (
        "_burst", "_failing", "_held", "_parts", "_qp", "_reads", "_reliable", "_stalled", "_xrc",
        "next_psn", "pending", "retry",
    )  # fmt: skip

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._reliable = qp.role in RELIABLE
        self._xrc = qp.role is Role.XRC
        self._held: SendWqe | None = None  # read from the ring, must wait
        self._failing = False  # a local failure is pending, nothing follows it
        self._stalled = False  # the walk of the ring stopped because of this engine
        self._reads = 0
        self._burst = 0
        self.pending: deque[SendWqe] = deque()
        self.next_psn = 0
        self.retry = Retry(qp, self)
        self._parts = PartSender(qp)

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""
        return not self.pending

    # -- SendEngine ---------------------------------------------------------------------------

    def execute(self, raw: bytes, index: int) -> None:
        """Carry out an entry, or hold it when it must wait."""
        try:
            wqe = parse_connected(raw, index)
        except WqeError as error:
            self._qp.bus.note(
                Kind.NOTE, f"QP {self._qp.qpn:#x} WQE {index}: {error}", obj=self._qp.qpn
            )
            wqe = SendWqe(index, 0, 0, 0, 0)
            self._reject(wqe, CompletionStatus.LOCAL_QP_OP_ERR)
            return
        if self._must_wait(wqe):
            self._held = wqe
        else:
            self._start(wqe)

    def blocked(self) -> bool:
        """Whether the next entry has to wait for answers or for a timer."""
        self._stalled = self._is_blocked()
        return self._stalled

    def _is_blocked(self) -> bool:
        if self._failing or self.retry.waiting or self.retry.resending:
            return True
        wqe = self._held
        if wqe is None:
            return False
        if self._must_wait(wqe):
            return True
        self._held = None
        self._start(wqe)
        return self._failing or self.retry.waiting or self._qp.state is not QpState.RTS

    def finish(self) -> None:
        """Requests go out one by one; the answers to those of this walk have time to come."""
        self._burst = 0

    def abort(self) -> None:
        """Flush all that is outstanding."""
        flushed = list(self.pending)
        if self._held is not None:
            flushed.append(self._held)
        self.stop()
        for wqe in flushed:
            self._qp.completions.fail_send(wqe.index, CompletionStatus.WR_FLUSH_ERR)

    def stop(self) -> None:
        """Forget all that is outstanding."""
        self.pending.clear()
        self._held = None
        self._failing = False
        self._reads = 0
        self.retry.cancel()

    def close(self) -> None:
        """The timer is all that refers to this engine."""
        self.retry.close()

    # -- sending ------------------------------------------------------------------------------

    def _must_wait(self, wqe: SendWqe) -> bool:
        if not self.pending:
            return False
        if wqe.length > WHOLE_BYTES or self.pending[0].length > WHOLE_BYTES:
            return True  # what moves in parts is under way alone
        if wqe.opcode in LOCAL or len(self.pending) >= WINDOW:
            return True  # invalidation and registration wait for whoever may use the region
        if self._reads:
            return wqe.fence or (wqe.returns_data and self._reads >= self._qp.read_limit)
        return False

    def _start(self, wqe: SendWqe) -> None:
        qp = self._qp
        opcode = wqe.opcode
        if wqe.fence or opcode in LOCAL:
            self._burst = 0  # it waits for all answers
        if opcode in LOCAL:
            status = local_operations.execute(qp, wqe)
            if status:
                self._reject(wqe, status)
            elif wqe.signalled:
                qp.completions.complete_send(wqe.index, opcode, 0)
            return
        if not self._reliable and opcode not in UNRELIABLE:
            self._reject(wqe, CompletionStatus.LOCAL_QP_OP_ERR)
            return
        if wqe.length > qp.max_message or (opcode in ATOMICS and wqe.length != ATOMIC_SIZE):
            self._reject(wqe, CompletionStatus.LOCAL_LENGTH_ERR)
            return
        wqe.psn = self.next_psn
        wqe.packets = packets_of(wqe.length, qp.mtu)
        self.next_psn = (wqe.psn + wqe.packets) & PSN_MASK
        self.pending.append(wqe)
        if wqe.returns_data:
            self._reads += 1
        if wqe.length > WHOLE_BYTES:
            self._start_parts(wqe)
            return
        self.transmit(wqe, note=True)
        if not self._reliable:
            if self.pending and not wqe.status:
                self._complete_head()
        elif self.pending:
            self.retry.start()

    def transmit(self, wqe: SendWqe, *, note: bool) -> None:
        """Send a request, or send it again; its local memory is checked each time."""
        qp = self._qp
        qp.bus.concern(qp.qpn, wqe.index)  # it may have waited
        if wqe.length > WHOLE_BYTES:
            self._transmit_part(wqe)
            return
        payload: Payload = ()
        try:
            if wqe.returns_data:
                count = len(qp.bus.views(qp.memory.scatter(wqe.parts, wqe.length)))
            else:
                payload = qp.memory.gather(wqe.parts, note=note)
                count = len(payload)
        except (AccessError, DmaError) as error:
            self._forbidden(wqe, error)
            return
        request = Request(
            OPS[wqe.opcode],
            qp.route,
            qp.qpn,
            qp.remote_qpn,
            wqe.psn,
            wqe.packets,
            wqe.length,
            payload,
            wqe.remote_address,
            wqe.rkey,
            wqe.immediate,
            wqe.solicited,
            self._reliable,
            wqe.atomic,
            wqe.flags >> 8 if self._xrc else None,
            ahead=self._ahead(note) if wqe.returns_data else 0,
        )
        qp.spent += MESSAGE_COST + PIECE_COST * count + wqe.length
        if wqe.returns_data:
            qp.traffic.sent(1, 0)
        else:
            qp.traffic.sent(wqe.packets, wqe.length)
        qp.port.send(request)

    def _ahead(self, first: bool) -> int:
        """How many reads and atomics are under way in front of the one that is sent now.

        `first`: not sent again, so that all others in `pending` are in front of it.
        """
        ahead = max(self._burst, self._reads - 1) if first else self._burst
        self._burst += 1
        return min(ahead, self._qp.read_limit - 1)

    def _start_parts(self, wqe: SendWqe) -> None:
        """Begin with a message that is too long to move in one go; nothing else is pending."""
        try:
            self._parts.begin(wqe)
        except AccessError as error:
            self._forbidden(wqe, error)
            return
        self._transmit_part(wqe)
        if self._reliable and self.pending:
            self.retry.start()

    def _transmit_part(self, wqe: SendWqe) -> None:
        """Send the part that is due: the next one, or the last one again."""
        qp = self._qp
        try:
            request = self._parts.request(wqe, self._reliable, self._xrc)
        except (AccessError, DmaError) as error:
            self._forbidden(wqe, error)
            return
        qp.port.send(request)
        if not self._reliable and self.pending and self.pending[0] is wqe:
            self._part_done(wqe)
            self._go_on()

    def _part_done(self, wqe: SendWqe) -> None:
        """A part has moved: the next one has its turn later, or the message is done."""
        if self._parts.advance(wqe):
            self._complete_head()
        else:
            self.retry.progress()
            self.retry.proceed()

    def _forbidden(self, wqe: SendWqe, error: Exception) -> None:
        qp = self._qp
        qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {wqe.index}: {error}", obj=qp.qpn)
        self._fail_in_turn(wqe, CompletionStatus.LOCAL_PROT_ERR)

    def _reject(self, wqe: SendWqe, status: CompletionStatus) -> None:
        """A request that cannot even be sent: it fails when its turn comes."""
        self.pending.append(wqe)
        self._fail_in_turn(wqe, status)

    def _fail_in_turn(self, wqe: SendWqe, status: CompletionStatus) -> None:
        wqe.status = status
        self._failing = True
        if self.pending and self.pending[0] is wqe:
            self.fail(status)

    # -- answers ------------------------------------------------------------------------------

    def receive(self, response: Response) -> None:
        """An answer of the responder; those to nothing pending are ignored."""
        qp = self._qp
        if qp.state not in (QpState.RTS, QpState.SQD) or not self._reliable:
            return
        if not self._acknowledge_before(response.psn):
            return
        qp.traffic.rx_packets += response.packets if response.read else 1
        syndrome = response.syndrome
        if syndrome & _KIND == Syndrome.RNR_NAK:
            self._burst = 0
            self.retry.not_ready(syndrome & 0x1F)
        elif syndrome == Syndrome.NAK_PSN:
            self.retry.sequence_error()
        elif syndrome & _KIND:
            self.fail(NAK_STATUS.get(syndrome, CompletionStatus.BAD_RESP_ERR))
        elif self.pending[0].psn == response.psn:
            self._acknowledge(response)
        self._go_on()

    def _acknowledge_before(self, psn: int) -> bool:
        """Complete what an answer to `psn` acknowledges by the way; whether more is to be done.

        An answer skips reads only if theirs was lost: then all is sent again from there.
        """
        pending = self.pending
        while pending and pending[0].psn != psn:
            head = pending[0]
            if (psn - head.psn) & PSN_MASK >= HALF or head.status or head.length > WHOLE_BYTES:
                return False
            if head.returns_data:
                self.retry.sequence_error()
                return False
            self._complete_head()
        return bool(pending)

    def _acknowledge(self, response: Response) -> None:
        wqe = self.pending[0]
        try:
            if wqe.length > WHOLE_BYTES:
                if self._parts.take(wqe, response.payload):
                    self._part_done(wqe)
                else:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                return
            if wqe.opcode == RDMA_READ:
                if pieces.size(response.payload) != wqe.length:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                    return
                self._store(wqe, response.payload)
                self._qp.traffic.rx_bytes += wqe.length
            elif wqe.opcode in ATOMICS:
                if response.atomic_original is None:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                    return
                # operands travel big-endian, memory holds them as the host does
                original = response.atomic_original.to_bytes(ATOMIC_SIZE, "little")
                self._store(wqe, [memoryview(original)])
        except (AccessError, DmaError):
            self.fail(CompletionStatus.LOCAL_PROT_ERR)
            return
        self._complete_head()

    def _store(self, wqe: SendWqe, source: Payload) -> None:
        qp = self._qp
        runs = qp.memory.scatter(wqe.parts, wqe.length)
        if not runs:
            return
        views = qp.bus.views(runs)
        pieces.copy(views, source)
        note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)

    def _complete_head(self) -> None:
        wqe = self.pending.popleft()
        if wqe.returns_data:
            self._reads -= 1
        self.retry.progress()
        if wqe.signalled:
            self._qp.completions.complete_send(wqe.index, wqe.opcode, wqe.length)
        if self.pending and self.pending[0].status:
            self.fail(CompletionStatus(self.pending[0].status))

    def fail(self, status: CompletionStatus) -> None:
        """The oldest request failed: complete it in error and flush the rest."""
        qp = self._qp
        if not self.pending:
            return
        wqe = self.pending.popleft()
        qp.completions.fail_send(wqe.index, status)
        qp.enter_send_error()

    def _go_on(self) -> None:
        """After an answer: entries that waited may run now."""
        qp = self._qp
        if qp.state is QpState.RTS:
            if self.pending:
                self.retry.start()
            if self._stalled and qp.sq is not None:
                qp.sq.run()
        elif qp.state is QpState.SQD and not self.pending and qp.sqd_event:
            qp.sqd_event = False
            qp.completions.event(EventType.SQ_DRAINED)
