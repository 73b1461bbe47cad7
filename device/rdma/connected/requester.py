"""The requester of a connected queue pair: sends requests, completes them in order.

Rules: InfiniBand vol. 1, 9.7.5 and 9.9.2. Messages are whole, so a request is answered as one;
PSNs still advance by the packets the path MTU makes of it.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Payload, Request, Response
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.layout.net.roce import PSN_MASK, Syndrome
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.connected.part_sender import PartSender
from bluebridge.device.rdma.connected.retry import HALF, NAK_STATUS, RetryingSender, packets_of
from bluebridge.device.rdma.connected.sending import ATOMIC_SIZE, WINDOW
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.pairs.costs import MESSAGE_COST, PIECE_COST, WHOLE_BYTES
from bluebridge.device.rdma.pairs.engines import Outstanding
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    LOCAL,
    NOP,
    OPS,
    READ,
    CompletionStatus,
    PairState,
    Role,
)
from bluebridge.device.rdma.work import SendWork, WorkError

_KIND: Final = 0x60  # of a syndrome: ACK, RNR NAK or NAK


class Requester(RetryingSender):
    """The requests of one queue pair; `pending` are those without an answer, oldest first.

    `next_psn` is the PSN of the next request. A request that fails locally waits in `pending`
    until the ones before it are done, since completions come in order.

    `_burst` counts the reads of one walk of the ring that would be under way together: the fabric
    answers at once, while an adapter sends the next read before it has the answer to the first.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._xrc = qp.role is Role.XRC
        self._failing = False  # a local failure is pending, nothing follows it
        self._reads = 0
        self._burst = 0
        self._parts = PartSender(qp)

    @property
    def idle(self) -> bool:
        return not self.pending

    def outstanding(self) -> Outstanding:
        numbers = [work.index for work in self.pending]
        return Outstanding(numbers, self.retries, self.rnr_retries, self.waiting)

    # -- SendEngine ---------------------------------------------------------------------------

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete an entry that makes no sense in error, after all entries before it."""
        self._tell_refused(index, error)
        self._reject(SendWork(index, NOP), error.status)

    def _is_blocked(self) -> bool:
        if self._failing or self.waiting or self.resending:
            return True
        return super()._is_blocked() or self._failing or self.waiting

    def finish(self) -> None:
        """End a walk of the ring: its requests are sent already, only the burst count restarts."""
        self._burst = 0

    def abort(self) -> None:
        """Complete all outstanding requests as flushed."""
        flushed = list(self.pending)
        if self._held is not None:
            flushed.append(self._held)
        self.stop()
        for work in flushed:
            self._qp.completions.fail_send(work.index, CompletionStatus.WR_FLUSH_ERR)

    def stop(self) -> None:
        """Forget all outstanding requests without completing them, and cancel the timer."""
        self.pending.clear()
        self._held = None
        self._failing = False
        self._reads = 0
        self._reset_retries()

    # -- sending ------------------------------------------------------------------------------

    def _must_wait(self, work: SendWork) -> bool:
        if not self.pending:
            return False
        if work.length > WHOLE_BYTES or self.pending[0].length > WHOLE_BYTES:
            return True  # what moves in parts is under way alone
        if work.operation in LOCAL or len(self.pending) >= WINDOW:
            return True  # invalidation and registration wait for whoever may use the region
        if self._reads:
            return work.fence or (work.returns_data and self._reads >= self._qp.read_limit)
        return False

    def _start(self, work: SendWork) -> None:
        qp = self._qp
        operation = work.operation
        if work.fence or operation in LOCAL:
            self._burst = 0  # it waits for all answers
        local = operation in LOCAL
        status = self._carry_out_locally(work) if local else self._fault(work)
        if status:
            self._reject(work, status)
        if status or local:
            return
        work.psn = self.next_psn
        work.packets = packets_of(work.length, qp.mtu)
        self.next_psn = (work.psn + work.packets) & PSN_MASK
        self.pending.append(work)
        if work.returns_data:
            self._reads += 1
        if work.length > WHOLE_BYTES:
            self._start_parts(work)
            return
        left = 0 if self._reliable else monotonic_ns()
        self.transmit(work, note=True)
        if not self._reliable:
            if self.pending and not work.status:
                self._complete_head(left)
        elif self.pending:
            self._start_timer()

    def transmit(self, work: SendWork, *, note: bool) -> None:
        """Send a request, or send it again; its local memory is checked each time."""
        qp = self._qp
        qp.bus.concern(qp.qpn, work.index)  # it may have waited
        if work.length > WHOLE_BYTES:
            self._transmit_part(work)
            return
        payload: Payload = ()
        try:
            if work.returns_data:
                count = len(qp.bus.views(qp.memory.scatter(work.parts, work.length)))
            else:
                payload = qp.memory.gather(work.parts, note=note)
                count = len(payload)
        except (AccessError, DmaError) as error:
            self._forbidden(work, error)
            return
        request = Request(
            OPS[work.operation],
            qp.route,
            qp.qpn,
            qp.remote_qpn,
            work.psn,
            work.packets,
            work.length,
            payload,
            work.remote_address,
            work.rkey,
            work.immediate,
            work.solicited,
            self._reliable,
            work.atomic,
            work.srqn if self._xrc else None,
            ahead=self._ahead(note) if work.returns_data else 0,
        )
        qp.spent += MESSAGE_COST + PIECE_COST * count + work.length
        packets, size = size_of(request)
        qp.traffic.sent(packets, size)
        qp.port.send(request)

    def _ahead(self, first: bool) -> int:
        """Count the reads and atomics that are under way in front of the one that is sent now.

        `first`: not sent again, so that all others in `pending` are in front of it.
        """
        ahead = max(self._burst, self._reads - 1) if first else self._burst
        self._burst += 1
        return min(ahead, self._qp.read_limit - 1)

    def _start_parts(self, work: SendWork) -> None:
        """Begin with a message that is too long to move in one go; nothing else is pending."""
        try:
            self._parts.begin(work)
        except AccessError as error:
            self._forbidden(work, error)
            return
        self._transmit_part(work)
        if self._reliable and self.pending:
            self._start_timer()

    def _transmit_part(self, work: SendWork) -> None:
        """Send the part that is due: the next one, or the last one again."""
        qp = self._qp
        try:
            request = self._parts.request(work, self._reliable, self._xrc)
        except (AccessError, DmaError) as error:
            self._forbidden(work, error)
            return
        left = monotonic_ns()
        qp.port.send(request)
        if not self._reliable and self.pending and self.pending[0] is work:
            self._part_done(work, left)
            self._go_on()

    def _part_done(self, work: SendWork, left: int = 0) -> None:
        """Send the next part in a later turn, or complete the message after its last part."""
        if self._parts.advance(work):
            self._complete_head(left)
        else:
            self._reset_retries()
            self._proceed()

    def _forbidden(self, work: SendWork, error: Exception) -> None:
        self._tell_refused(work.index, error)
        self._fail_in_turn(work, CompletionStatus.LOCAL_PROT_ERR)

    def _reject(self, work: SendWork, status: int) -> None:
        """Fail a request that cannot even be sent, when those before it are complete."""
        self.pending.append(work)
        self._fail_in_turn(work, status)

    def _fail_in_turn(self, work: SendWork, status: int) -> None:
        work.status = status
        self._failing = True
        if self.pending and self.pending[0] is work:
            self.fail(CompletionStatus(status))

    # -- answers ------------------------------------------------------------------------------

    def receive(self, response: Response) -> None:
        """Process an answer of the responder; one that fits no pending request is ignored."""
        qp = self._qp
        if qp.state not in (PairState.RTS, PairState.SQD) or not self._reliable:
            return
        if not self._acknowledge_before(response.psn):
            return
        packets, size = size_of(response)
        qp.traffic.received(packets, size)
        syndrome = response.syndrome
        if syndrome:
            qp.port.diagnostics.was_refused(syndrome)
        if syndrome & _KIND == Syndrome.RNR_NAK:
            self._burst = 0
            self._receiver_not_ready(syndrome & 0x1F)
        elif syndrome == Syndrome.NAK_PSN:
            self._sequence_error()
        elif syndrome & _KIND:
            self.fail(NAK_STATUS.get(syndrome, CompletionStatus.BAD_RESP_ERR))
        elif self.pending[0].psn == response.psn:
            self._acknowledge(response)
        self._go_on()

    def _acknowledge_before(self, psn: int) -> bool:
        """Complete the requests before this PSN; returns False when nothing is left to do.

        An answer skips reads only if theirs was lost: then all is sent again from there.
        """
        pending = self.pending
        while pending and pending[0].psn != psn:
            head = pending[0]
            if (psn - head.psn) & PSN_MASK >= HALF or head.status or head.length > WHOLE_BYTES:
                return False
            if head.returns_data:
                self._sequence_error()
                return False
            self._complete_head()
        return bool(pending)

    def _acknowledge(self, response: Response) -> None:
        work = self.pending[0]
        try:
            if work.length > WHOLE_BYTES:
                if self._parts.take(work, response.payload):
                    self._part_done(work)
                else:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                return
            if work.operation == READ:
                if pieces.size(response.payload) != work.length:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                    return
                self._qp.memory.store(work.parts, work.length, response.payload)
            elif work.operation in ATOMICS:
                if response.atomic_original is None:
                    self.fail(CompletionStatus.BAD_RESP_ERR)
                    return
                # operands travel big-endian, memory holds them as the host does
                original = response.atomic_original.to_bytes(ATOMIC_SIZE, "little")
                self._qp.memory.store(work.parts, work.length, [original])
        except (AccessError, DmaError):
            self.fail(CompletionStatus.LOCAL_PROT_ERR)
            return
        self._complete_head()

    def _complete_head(self, left: int = 0) -> None:
        work = self.pending.popleft()
        if work.returns_data:
            self._reads -= 1
        self._reset_retries()
        if work.signalled:
            self._qp.completions.complete_send(work.index, work.operation, work.length, left)
        if self.pending and self.pending[0].status:
            self.fail(CompletionStatus(self.pending[0].status))

    def fail(self, status: CompletionStatus) -> None:
        """Complete the oldest request in error and flush the rest."""
        qp = self._qp
        if not self.pending:
            return
        work = self.pending.popleft()
        qp.completions.fail_send(work.index, status)
        qp.enter_send_error()

    def _go_on(self) -> None:
        if self.pending and self._alive():
            self._start_timer()  # in SQD, too: what is under way is finished there
        super()._go_on()
