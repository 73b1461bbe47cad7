"""The responder of a connected queue pair: carries out the peer's requests or refuses them.

Rules: InfiniBand vol. 1, 9.7.4 and 9.7.5; a request is checked as a whole before a byte moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Part, Payload, Request, Response
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import ATOMICS, PSN_MASK, Op, Syndrome
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.connected.requester import HALF
from bluebridge.device.rdma.memory.region import AccessError, Rights
from bluebridge.device.rdma.memory.scatter_gather import WRITE, note_runs, stretch
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import ReceiveQueue, SharedReceiveQueue
from bluebridge.device.rdma.vocabulary import (
    RECEIVING,
    RELIABLE,
    AsyncEvent,
    CompletionStatus,
    PairState,
    Role,
)
from bluebridge.device.rdma.work import ReceiveWork

MASK: Final = (1 << 64) - 1
NOTHING: Final = -1
"""In place of a PSN: no message is under way."""

_REMOTE_READ: Final = int(Rights.REMOTE_READ)
_REMOTE_WRITE: Final = int(Rights.REMOTE_WRITE)
_REMOTE_ATOMIC: Final = int(Rights.REMOTE_ATOMIC)
_SENDS: Final = frozenset((Op.SEND, Op.SEND_IMM, Op.SEND_INV))
_WRITES: Final = frozenset((Op.WRITE, Op.WRITE_IMM))
_WORD: Final = Struct("<Q")  # atomics work on the host's integers
_ALIGNMENT: Final = 7
_RECEIVE_FAILURE: Final = {CompletionStatus.LOCAL_LENGTH_ERR: Syndrome.NAK_INVALID_REQUEST}


class Nak(Exception):
    """A request that is refused: NAK syndrome for the peer, asynchronous event for our software."""

    def __init__(self, syndrome: Syndrome, event: AsyncEvent | None, reason: str) -> None:
        super().__init__(reason)
        self.syndrome = syndrome
        self.event = event


class NotReady(Exception):
    """A request cannot be carried out now: no receive is posted for it."""


def invalid(reason: str) -> Nak:
    """Return the refusal of a request that makes no sense or is not permitted."""
    return Nak(Syndrome.NAK_INVALID_REQUEST, AsyncEvent.WQ_INVALID_REQUEST, reason)


def remote_access(error: Exception) -> Nak:
    """Return the refusal of a remote address that is not permitted or is not memory."""
    return Nak(Syndrome.NAK_REMOTE_ACCESS, AsyncEvent.WQ_ACCESS_ERROR, str(error))


def operate(op: Op, value: int, operands: tuple[int, int, int, int]) -> int:
    """Return the number that an atomic leaves in memory that held `value`.

    `operands` are swap or add, compare, swap mask or field boundaries, compare mask. A set bit
    in the boundaries of a masked add is the top bit of a field: no carry leaves it (Linux
    `include/rdma/ib_verbs.h: IB_WR_MASKED_ATOMIC_FETCH_AND_ADD`).
    """
    first, compare, mask, compare_mask = operands
    if op is Op.COMPARE_SWAP:
        return first if value == compare else value
    if op is Op.FETCH_ADD:
        return (value + first) & MASK
    if op is Op.MASKED_COMPARE_SWAP:
        if (value ^ compare) & compare_mask:
            return value
        return value & ~mask & MASK | first & mask
    if op is Op.MASKED_FETCH_ADD:
        below = ~mask & MASK
        return (((value & below) + (first & below)) ^ ((value ^ first) & mask)) & MASK
    raise ValueError(f"{op!r} is no atomic")


class Responder(ReceiveEngine):
    """The responder of one peer; `psn` is the PSN expected next, `msn` counts messages done.

    `_results` are PSNs and results of the last atomics, newest first: as many as the peer may have
    under way, which are those that may come again (InfiniBand vol. 1, 9.4.5).

    Long messages come in parts (`fabric.messages.Part`), each of which is checked and carried out
    like the packets of an adapter: a region that is gone when the next part comes refuses that.
    What concerns the message is done once: keys are checked for all of it before the first part
    moves, a receive is completed after the last. `_following` is the PSN of the part that continues
    the message under way, `_receive` the receive that a message moves into.

    Requests of XRC name an SRQ, which must be in the queue pair's XRC domain (annex A14; Linux
    `ib/qp.c: create_qp_common`, `ib/srq.c`, rdma-core `providers/mlx4/cq.c`). Receives, protection
    domain and completions are those of `_srq`, the last one named; `_misnamed`: the request at hand
    names none.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__()
        self._qp = qp
        self._pd = qp.pd
        self._reliable = qp.role in RELIABLE
        self._xrc = qp.role is Role.XRC
        self._srq: SharedReceiveQueue | None = None
        self._misnamed = False
        self._nak_sent = False  # a NAK is out; what follows is dropped until the expected PSN comes
        self._results: deque[tuple[int, int]] = deque()
        self._following = NOTHING
        self._receive: ReceiveWork | None = None

    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""
        work, self._receive = self._receive, None
        if work is not None:
            self._fail_receive(work, CompletionStatus.WR_FLUSH_ERR)

    def receive(self, request: Request) -> None:
        """Carry out a request of the connected peer; any other is dropped without an answer."""
        qp = self._qp
        if (
            qp.state not in RECEIVING
            or request.source_qpn != qp.remote_qpn
            or request.reliable != self._reliable
            or (request.srqn is None) == self._xrc
        ):
            return
        if not qp.established:
            self._establish()
        if request.srqn is not None:
            self._misnamed = not self._find_srq(request.srqn)
        packets, size = size_of(request)
        qp.traffic.received(packets, size)
        if not request.reliable:
            self._unreliable(request)
            return
        ahead = (request.psn - self.psn) & PSN_MASK
        if ahead >= HALF:
            self._duplicate(request)
        elif ahead:
            if not self._nak_sent:
                self._nak_sent = True
                self._tell_nak(Syndrome.NAK_PSN, request, f"expected PSN {self.psn:#x}")
                self._answer(self.psn, Syndrome.NAK_PSN)
        else:
            self._in_order(request)

    def _establish(self) -> None:
        """Tell software of a peer's first message, in case the connection manager's was lost."""
        qp = self._qp
        qp.established = True
        if qp.state is PairState.RTR:
            qp.completions.event(AsyncEvent.COMM_EST)

    def _in_order(self, request: Request) -> None:
        qp = self._qp
        self._nak_sent = False
        try:
            payload, original = self._carry_out(request)
        except NotReady:
            self._nak_sent = True
            self._answer(request.psn, Syndrome.RNR_NAK | qp.min_rnr_timer)
            return
        except Nak as nak:
            self._refuse(request, nak)
            return
        self.psn = (self.psn + request.packets) & PSN_MASK
        if request.part is None or request.part.last:
            self.msn = (self.msn + 1) & PSN_MASK
        self._answer(request.psn, Syndrome.ACK, payload, original, request)

    def _refuse(self, request: Request, nak: Nak) -> None:
        """Send a NAK and go to the error state with the event of `nak`; no byte moves."""
        self._tell_nak(nak.syndrome, request, str(nak))
        self._answer(request.psn, nak.syndrome)
        self._qp.enter_error(nak.event)

    def _unreliable(self, request: Request) -> None:
        """Carry out a request of UC; one that cannot be carried out is dropped in silence."""
        try:
            if request.op not in _SENDS and request.op not in _WRITES:
                return
            self._carry_out(request)
        except NotReady:
            return
        except Nak as nak:
            qp, operation, reason = self._qp, request.op.name, str(nak)
            qp.bus.tell(Fact.DROPPED, qpn=qp.qpn, operation=operation, reason=reason)
            if nak.event is None:  # a receive was spent on it
                self._qp.enter_error()
        self.psn = (request.psn + request.packets) & PSN_MASK

    def _duplicate(self, request: Request) -> None:
        """Answer a request again that was carried out before, without writing a second time."""
        if self._misnamed:
            return
        self._qp.port.diagnostics.add("rq_num_dup")
        if request.op is Op.READ:
            try:
                self._answer(request.psn, Syndrome.ACK, self._read(request), None, request)
            except Nak:
                self._qp.bus.tell(Fact.REPEATED_READ_REFUSED, qpn=self._qp.qpn)
        elif request.op in ATOMICS:
            for psn, original in self._results:
                if psn == request.psn:
                    self._answer(psn, Syndrome.ACK, (), original, request)
                    return  # an older one of this number is of another lap of the PSNs
        else:
            self._answer(request.psn, Syndrome.ACK, (), None, request)

    def _answer(
        self,
        psn: int,
        syndrome: int,
        payload: Payload = (),
        original: int | None = None,
        done: Request | None = None,
    ) -> None:
        """Send an answer; `done` is the request that was carried out."""
        qp = self._qp
        if syndrome:
            qp.port.diagnostics.refused(syndrome)
        answer = Response(qp.route, qp.remote_qpn, psn, syndrome, self.msn, payload, original)
        answer.source_qpn = qp.qpn
        if self._xrc:
            answer.xrc = True
        if done is not None:
            answer.packets, answer.part = done.packets, done.part
            answer.read = done.op is Op.READ
        packets, size = size_of(answer)
        qp.traffic.sent(packets, size)
        qp.port.send(answer)

    def _tell_nak(self, syndrome: int, request: Request, reason: str) -> None:
        self._qp.bus.tell(
            Fact.NAK,
            qpn=self._qp.qpn,
            syndrome=syndrome,
            operation=request.op.name,
            psn=request.psn,
            reason=reason,
        )

    # -- operations ---------------------------------------------------------------------------

    def _carry_out(self, request: Request) -> tuple[Payload, int | None]:
        """Carry out a request or a part of one; raises `Nak`, `NotReady`.

        Returns read data, and the value that an atomic found.
        """
        op, part, qp = request.op, request.part, self._qp
        payload: Payload = ()
        original: int | None = None
        if self._misnamed:
            raise invalid(f"SRQ {request.srqn:#x} is not in XRC domain {qp.xrcd}")
        if request.ahead >= qp.answer_limit:
            raise invalid(f"more than {qp.answer_limit} reads and atomics at once")
        if part is not None:
            self._join(request, part)
        if op in _SENDS:
            self._send(request, part)
        elif op in _WRITES:
            self._write(request, part)
        elif op is Op.READ:
            payload = self._read(request)
        elif op in ATOMICS:
            original = self._atomic(request)
        else:
            raise invalid(f"operation {op}")
        if part is not None:
            self._following = NOTHING if part.last else request.psn + request.packets & PSN_MASK
        return payload, original

    def _join(self, request: Request, part: Part) -> None:
        """Check that a part continues the message under way, or that a message may begin."""
        if part.offset:
            if request.psn == self._following:
                return
            if not self._reliable:
                raise NotReady  # an earlier part was lost or refused
            raise invalid("a part without those before it")
        self._following = NOTHING
        if self._receive is not None and self._reliable:
            raise invalid("a message in the middle of another")
        if request.op is Op.READ or request.op in _WRITES:
            end = request.remote_address + part.total - 1
            self._range(replace(request, remote_address=end), 1)

    def _range(self, request: Request, length: int) -> Sequence[Run]:
        """Return where `length` bytes at a read's or write's remote address lie; raises `Nak`."""
        qp = self._qp
        if request.op is Op.READ:
            return self._remote(request, qp.remote_read, _REMOTE_READ, length)
        return self._remote(request, qp.remote_write, _REMOTE_WRITE, length)

    def _remote(self, request: Request, allowed: bool, right: int, length: int) -> Sequence[Run]:
        """Return where the remote address of a request lies; raises `Nak`."""
        qp = self._qp
        if not allowed:
            raise invalid("the queue pair does not permit it")
        try:
            return qp.regions.resolve(
                request.rkey, request.remote_address, length, right, self._pd, qpn=qp.qpn
            )
        except AccessError as error:
            raise remote_access(error) from error

    def _views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        """Return views of memory that remote addresses lie in; raises `Nak`."""
        try:
            return self._qp.bus.views(runs) if runs else ()
        except DmaError as error:
            raise remote_access(error) from error

    def _move(self, payload: Payload, runs: Sequence[Run], views: Sequence[memoryview]) -> None:
        if views:
            pieces.copy(views, payload)
            note_runs(self._qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, self._qp.qpn)

    def _write(self, request: Request, part: Part | None) -> None:
        runs = self._remote(request, self._qp.remote_write, _REMOTE_WRITE, request.length)
        views = self._views(runs)
        notifies = request.op is Op.WRITE_IMM and (part is None or part.last)
        work = self._take() if notifies else None
        self._move(request.payload, runs, views)
        if work is not None:
            self._complete_message(work, request)

    def _read(self, request: Request) -> Payload:
        """Return the bytes that a read asks for; raises `Nak`."""
        runs = self._remote(request, self._qp.remote_read, _REMOTE_READ, request.length)
        views = self._views(runs)
        note_runs(self._qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, self._qp.qpn)
        return views

    def _atomic(self, request: Request) -> int:
        qp = self._qp
        if request.remote_address & _ALIGNMENT:
            raise invalid("unaligned atomic")
        runs = self._remote(request, qp.remote_atomic, _REMOTE_ATOMIC, _WORD.size)
        views = self._views(runs)  # two, where a border of memory regions cuts the word
        note_runs(qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, qp.qpn)
        (original,) = _WORD.unpack(b"".join(views))
        result = operate(request.op, original, request.atomic)
        self._move([memoryview(_WORD.pack(result))], runs, views)
        self._results.appendleft((request.psn, original))
        if len(self._results) > qp.answer_limit:
            self._results.pop()
        return int(original)

    def _send(self, request: Request, part: Part | None) -> None:
        """Carry out a send: check the receive, its memory and the key to invalidate, then copy."""
        qp, length = self._qp, request.length
        work = self._receive if part is not None and part.offset else self._begin(request, part)
        if work is None:
            raise NotReady
        self._receive = None  # whatever fails below completes it
        try:
            sges = work.sges if part is None else stretch(work.sges, part.offset, length)
            runs = qp.memory.scatter(sges, length, work.pd)
            views = qp.bus.views(runs) if runs else ()
        except (AccessError, DmaError) as error:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        ends = part is None or part.last
        if ends and request.op is Op.SEND_INV:
            self._invalidate(work, request.immediate)
        self._move(request.payload, runs, views)
        if ends:
            self._complete_message(work, request)
        else:
            self._receive = work

    def _begin(self, request: Request, part: Part | None) -> ReceiveWork:
        """Return a receive that has room for a message; raises `Nak`, `NotReady`.

        That of a message of UC that broke off is used again.
        """
        work, self._receive = self._receive, None
        if work is None:
            work = self._take()
        total = request.length if part is None else part.total
        if total > sum(sge[2] for sge in work.sges):
            raise self._failed(work, CompletionStatus.LOCAL_LENGTH_ERR, "the message is too long")
        if part is not None:
            try:
                self._qp.memory.check(work.sges, total, WRITE, work.pd)
            except AccessError as error:
                raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        return work

    # -- receives -----------------------------------------------------------------------------

    def _find_srq(self, srqn: int) -> bool:
        """Receive from SRQ `srqn` from now on; False if it is not in the XRC domain."""
        srq = self._qp.srqs.get(srqn)
        if srq is None or srq.xrcd != self._qp.xrcd:
            return False
        self._srq, self._pd = srq, srq.pd
        return True

    def _take(self) -> ReceiveWork:
        """Return the next receive; raises `NotReady`, `Nak`."""
        queue: ReceiveQueue | None = self._srq if self._xrc else self._qp.receives
        try:
            work = queue.take() if queue is not None else None
        except DmaError as error:
            event = AsyncEvent.WQ_CATAS_ERROR
            raise Nak(Syndrome.NAK_REMOTE_OPERATION, event, str(error)) from error
        if work is None:
            raise NotReady
        return work

    def _invalidate(self, work: ReceiveWork, rkey: int) -> None:
        """Invalidate the key of a SEND_INV; raises `Nak` after `work` was completed in error."""
        try:
            self._qp.regions.invalidate(rkey, self._pd, qpn=self._qp.qpn, remote=True)
        except AccessError as error:
            self._fail_receive(work, CompletionStatus.LOCAL_ACCESS_ERR)
            raise remote_access(error) from error

    def _failed(self, work: ReceiveWork, status: CompletionStatus, reason: str) -> Nak:
        """Complete a receive that its message did not fit; the refusal returned has no event."""
        self._fail_receive(work, status)
        return Nak(_RECEIVE_FAILURE.get(status, Syndrome.NAK_REMOTE_OPERATION), None, reason)

    def _complete_message(self, work: ReceiveWork, request: Request) -> None:
        """Complete the receive of a whole message; that of an SRQ names the SRQ as its source."""
        qp, srq, part = self._qp, self._srq, request.part
        qp.completions.complete_receive(
            work.index,
            request.op,
            request.length if part is None else part.total,
            qp.remote_qpn if srq is None else srq.srqn,
            request.immediate,
            request.solicited,
            -1 if srq is None else srq.cqn,
        )

    def _fail_receive(self, work: ReceiveWork, status: CompletionStatus) -> None:
        cqn = -1 if self._srq is None else self._srq.cqn
        self._qp.completions.fail_receive(work.index, status, cqn)
