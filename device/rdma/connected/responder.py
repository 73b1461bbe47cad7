"""The responder of a connected queue pair: carries out the peer's requests or refuses them.

Rules: InfiniBand vol. 1, 9.7.4 and 9.7.5; a request is checked as a whole before a byte moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Payload, Request, Response
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import PSN_MASK, Op, Syndrome
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.connected.atomics import operate
from bluebridge.device.rdma.connected.part_receiver import PartReceiver
from bluebridge.device.rdma.connected.refusals import Nak, NotReady, remote_access
from bluebridge.device.rdma.connected.retry import HALF
from bluebridge.device.rdma.memory.region import AccessError, Rights
from bluebridge.device.rdma.memory.scatter_gather import note_runs
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import ReceiveQueue
from bluebridge.device.rdma.vocabulary import (
    RECEIVING,
    AsyncEvent,
    CompletionStatus,
    PairState,
    Role,
)
from bluebridge.device.rdma.work import ReceiveWork

_REMOTE_READ: Final = int(Rights.REMOTE_READ)
_REMOTE_WRITE: Final = int(Rights.REMOTE_WRITE)
_REMOTE_ATOMIC: Final = int(Rights.REMOTE_ATOMIC)
_ATOMIC_OPS: Final = frozenset(
    (Op.COMPARE_SWAP, Op.FETCH_ADD, Op.MASKED_COMPARE_SWAP, Op.MASKED_FETCH_ADD)
)
_SENDS: Final = frozenset((Op.SEND, Op.SEND_IMM, Op.SEND_INV))
_WRITES: Final = frozenset((Op.WRITE, Op.WRITE_IMM))
_WORD: Final = Struct("<Q")  # atomics work on the host's integers
_ALIGNMENT: Final = 7
_RECEIVE_FAILURE: Final = {CompletionStatus.LOCAL_LENGTH_ERR: Syndrome.NAK_INVALID_REQUEST}


class Responder(PartReceiver):
    """The responder of one peer; `psn` is the PSN expected next, `msn` counts messages done.

    `_results` are PSNs and results of the last atomics, newest first: as many as the peer may have
    under way, which are those that may come again (InfiniBand vol. 1, 9.4.5).
    """

    __slots__ = ("_nak_sent", "_pd", "_results", "_xrc")

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._pd = qp.pd
        self._xrc = qp.role is Role.XRC
        self._nak_sent = False  # a NAK is out; what follows is dropped until the expected PSN comes
        self._results: deque[tuple[int, int]] = deque()
        self.psn = 0
        self.msn = 0

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
        if request.op is Op.READ:
            if request.part is None or request.part.begins:
                qp.traffic.received(1, 0)
        else:
            qp.traffic.received(request.packets, request.length)
        if not request.reliable:
            self._unreliable(request)
            return
        ahead = (request.psn - self.psn) & PSN_MASK
        if ahead >= HALF:
            self._duplicate(request)
        elif ahead:
            if not self._nak_sent:
                self._nak_sent = True
                gap = f"PSN {request.psn:#x}, expected {self.psn:#x}"
                self._note(f"NAK {Syndrome.NAK_PSN:#x}: {gap}")
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
        self._note(f"NAK {nak.syndrome:#x} for {request.op.name}: {nak}")
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
            self._note(f"dropped {request.op.name}: {nak}")
            if nak.event is None:  # a receive was spent on it
                self._qp.enter_error()
        self.psn = (request.psn + request.packets) & PSN_MASK

    def _duplicate(self, request: Request) -> None:
        """Answer a request again that was carried out before, without writing a second time."""
        self._qp.port.diagnostics.add("rq_num_dup")
        if request.op is Op.READ:
            try:
                self._answer(request.psn, Syndrome.ACK, self._read(request), None, request)
            except Nak:
                self._note("a read that came again is not permitted any more")
        elif request.op in _ATOMIC_OPS:
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
        if answer.read and done is not None:
            qp.traffic.sent(done.packets, done.length)
        else:
            qp.traffic.sent(1, 0)
        qp.port.send(answer)

    def _note(self, text: str) -> None:
        self._qp.bus.note(Kind.NOTE, f"QP {self._qp.qpn:#x}: {text}", obj=self._qp.qpn)

    # -- operations ---------------------------------------------------------------------------

    def _carry_out(self, request: Request) -> tuple[Payload, int | None]:
        """Carry a request out; returns read data, and the value that an atomic found."""
        op = request.op
        if request.ahead >= self._qp.answer_limit:
            raise Nak(
                Syndrome.NAK_INVALID_REQUEST,
                AsyncEvent.WQ_INVALID_REQUEST,
                f"more than {self._qp.answer_limit} reads and atomics at once",
            )
        if request.part is not None:
            return self._carry_out_part(request, request.part), None
        if op in _SENDS:
            self._send(request)
        elif op in _WRITES:
            self._write(request)
        elif op is Op.READ:
            return self._read(request), None
        elif op in _ATOMIC_OPS:
            return (), self._atomic(request)
        else:
            event = AsyncEvent.WQ_INVALID_REQUEST
            raise Nak(Syndrome.NAK_INVALID_REQUEST, event, f"operation {op}")
        return (), None

    def _range(self, request: Request, length: int) -> Sequence[Run]:
        qp = self._qp
        if request.op is Op.READ:
            return self._remote(request, qp.remote_read, _REMOTE_READ, length)
        return self._remote(request, qp.remote_write, _REMOTE_WRITE, length)

    def _remote(self, request: Request, allowed: bool, right: int, length: int) -> Sequence[Run]:
        """Return where the remote address of a request lies; raises `Nak`."""
        qp = self._qp
        if not allowed:
            raise Nak(
                Syndrome.NAK_INVALID_REQUEST,
                AsyncEvent.WQ_INVALID_REQUEST,
                "the queue pair does not permit it",
            )
        try:
            return qp.regions.resolve(
                request.rkey, request.remote_address, length, right, self._pd, qpn=qp.qpn
            )
        except AccessError as error:
            raise remote_access(error) from error

    def _views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        try:
            return self._qp.bus.views(runs) if runs else ()
        except DmaError as error:
            raise remote_access(error) from error

    def _write(self, request: Request) -> None:
        qp = self._qp
        runs = self._remote(request, qp.remote_write, _REMOTE_WRITE, request.length)
        views = self._views(runs)
        work = self._take() if request.op is Op.WRITE_IMM else None
        if views:
            pieces.copy(views, request.payload)
            note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)
        if work is not None:
            self._complete_message(work, request)

    def _read(self, request: Request) -> Payload:
        runs = self._remote(request, self._qp.remote_read, _REMOTE_READ, request.length)
        views = self._views(runs)
        note_runs(self._qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, self._qp.qpn)
        return views

    def _atomic(self, request: Request) -> int:
        qp = self._qp
        if request.remote_address & _ALIGNMENT:
            event = AsyncEvent.WQ_INVALID_REQUEST
            raise Nak(Syndrome.NAK_INVALID_REQUEST, event, "unaligned atomic")
        runs = self._remote(request, qp.remote_atomic, _REMOTE_ATOMIC, _WORD.size)
        views = self._views(runs)  # two, where a border of memory regions cuts the word
        note_runs(qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, qp.qpn)
        (original,) = _WORD.unpack(b"".join(views))
        result = operate(request.op, original, request.atomic)
        pieces.copy(views, [memoryview(_WORD.pack(result))])
        note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)
        self._results.appendleft((request.psn, original))
        if len(self._results) > qp.answer_limit:
            self._results.pop()
        return int(original)

    def _send(self, request: Request) -> None:
        """Carry out a send: check the receive, its memory and the key to invalidate, then copy."""
        qp = self._qp
        work = self._take()
        if request.length > sum(sge[2] for sge in work.sges):
            raise self._failed(work, CompletionStatus.LOCAL_LENGTH_ERR, "the message is too long")
        try:
            runs = qp.memory.scatter(work.sges, request.length, work.pd)
            views = qp.bus.views(runs) if runs else ()
        except (AccessError, DmaError) as error:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        if request.op is Op.SEND_INV:
            self._invalidate(work, request.immediate)
        if views:
            pieces.copy(views, request.payload)
            note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)
        self._complete_message(work, request)

    def _invalidate(self, work: ReceiveWork, rkey: int) -> None:
        try:
            self._qp.regions.invalidate(rkey, self._pd, qpn=self._qp.qpn, remote=True)
        except AccessError as error:
            self._fail_receive(work, CompletionStatus.LOCAL_ACCESS_ERR)
            raise remote_access(error) from error

    def _receives(self) -> ReceiveQueue | None:
        return self._qp.receives

    def _take(self) -> ReceiveWork:
        queue = self._receives()
        try:
            work = queue.take() if queue is not None else None
        except DmaError as error:
            raise Nak(
                Syndrome.NAK_REMOTE_OPERATION, AsyncEvent.WQ_CATAS_ERROR, str(error)
            ) from error
        if work is None:
            raise NotReady
        return work

    def _failed(self, work: ReceiveWork, status: CompletionStatus, reason: str) -> Nak:
        """Complete a receive that its message did not fit; the refusal returned has no event."""
        self._fail_receive(work, status)
        return Nak(_RECEIVE_FAILURE.get(status, Syndrome.NAK_REMOTE_OPERATION), None, reason)

    def _complete_message(self, work: ReceiveWork, request: Request) -> None:
        qp = self._qp
        qp.completions.complete_receive(
            work.index,
            request.op,
            request.length,
            qp.remote_qpn,
            request.immediate,
            request.solicited,
        )

    def _fail_receive(self, work: ReceiveWork, status: CompletionStatus) -> None:
        self._qp.completions.fail_receive(work.index, status)
