"""The responder's part in messages that move in parts (`fabric.messages.Part`).

Each part is checked and carried out like the packets of an adapter: a region that is gone when the
next part comes refuses that. What concerns the message is done once: keys are checked for all of
it before the first part moves, a receive is completed after the last (InfiniBand vol. 1, 9.7.5).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Part, Payload, Request
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import PSN_MASK, Op, Syndrome
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.connected.refusals import Nak, NotReady
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import WRITE, note_runs, stretch
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import RELIABLE, AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

NOTHING: Final = -1
"""In place of a PSN: no message is under way."""

_WRITES: Final = (Op.WRITE, Op.WRITE_IMM)


class PartReceiver(ReceiveEngine):
    """The base of a responder that receives messages in parts.

    `_following` is the PSN of the part that continues the message under way, `_receive` the receive
    that a message moves into.
    """

    __slots__ = ("_following", "_qp", "_receive", "_reliable")

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._reliable = qp.role in RELIABLE
        self._following = NOTHING
        self._receive: ReceiveWork | None = None

    def abort(self) -> None:
        work, self._receive = self._receive, None
        if work is not None:
            self._fail_receive(work, CompletionStatus.WR_FLUSH_ERR)

    # -- what whole messages need, too ----------------------------------------------------------

    @abstractmethod
    def _range(self, request: Request, length: int) -> Sequence[Run]:
        """Return where `length` bytes at a read's or write's remote address lie; raises `Nak`."""

    @abstractmethod
    def _views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        """Return views of memory that remote addresses lie in; raises `Nak`."""

    @abstractmethod
    def _read(self, request: Request) -> Payload:
        """Return the bytes that a read asks for; raises `Nak`."""

    @abstractmethod
    def _take(self) -> ReceiveWork:
        """Return the next receive; raises `NotReady`, `Nak`."""

    @abstractmethod
    def _invalidate(self, work: ReceiveWork, rkey: int) -> None:
        """Invalidate the key of a SEND_INV; raises `Nak` after `work` was completed in error."""

    @abstractmethod
    def _complete_message(self, work: ReceiveWork, request: Request) -> None:
        """Complete the receive of a whole message, as its `request` describes it."""

    @abstractmethod
    def _failed(self, work: ReceiveWork, status: CompletionStatus, reason: str) -> Nak:
        """Complete a receive in error; returns the refusal that the peer is sent."""

    @abstractmethod
    def _fail_receive(self, work: ReceiveWork, status: CompletionStatus) -> None:
        """Complete a receive in error."""

    # -- parts ----------------------------------------------------------------------------------

    def _carry_out_part(self, request: Request, part: Part) -> Payload:
        """Carry out one part; returns the data of a read. Raises `Nak`, `NotReady`."""
        self._join(request, part)
        payload: Payload = ()
        if request.op is Op.READ:
            payload = self._read(request)
        elif request.op in _WRITES:
            self._write_part(request, part)
        else:
            self._send_part(request, part)
        self._following = NOTHING if part.last else request.psn + request.packets & PSN_MASK
        return payload

    def _join(self, request: Request, part: Part) -> None:
        """Check that a part continues the message under way, or that a message may begin."""
        if part.offset:
            if request.psn == self._following:
                return
            if not self._reliable:
                raise NotReady  # an earlier part was lost or refused
            self._refuse_order("a part without those before it")
        self._following = NOTHING
        if self._receive is not None and self._reliable:
            self._refuse_order("a message in the middle of another")
        if request.op is Op.READ or request.op in _WRITES:
            end = request.remote_address + part.total - 1
            self._range(replace(request, remote_address=end), 1)

    def _refuse_order(self, reason: str) -> None:
        raise Nak(Syndrome.NAK_INVALID_REQUEST, AsyncEvent.WQ_INVALID_REQUEST, reason)

    def _write_part(self, request: Request, part: Part) -> None:
        runs = self._range(request, request.length)
        views = self._views(runs)
        work = self._take() if part.last and request.op is Op.WRITE_IMM else None
        self._move(request, runs, views)
        if work is not None:
            self._complete_message(work, replace(request, length=part.total))

    def _send_part(self, request: Request, part: Part) -> None:
        work = self._receive
        if not part.offset:
            work = self._new_receive(work, part.total)
        if work is None:
            raise NotReady
        self._receive = None  # whatever fails below completes it
        try:
            sges = stretch(work.sges, part.offset, request.length)
            runs = self._qp.memory.scatter(sges, request.length, work.pd)
            views = self._qp.bus.views(runs)
        except (AccessError, DmaError) as error:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        if part.last and request.op is Op.SEND_INV:
            self._invalidate(work, request.immediate)
        self._move(request, runs, views)
        if part.last:
            self._complete_message(work, replace(request, length=part.total))
        else:
            self._receive = work

    def _new_receive(self, kept: ReceiveWork | None, total: int) -> ReceiveWork:
        """Return a receive with room for `total` bytes; raises `Nak`, `NotReady`.

        `kept` is the receive of a message that broke off, which is used again; None without one.
        """
        self._receive = None
        work = self._take() if kept is None else kept
        if total > sum(sge[2] for sge in work.sges):
            raise self._failed(work, CompletionStatus.LOCAL_LENGTH_ERR, "the message is too long")
        try:
            self._qp.memory.check(work.sges, total, WRITE, work.pd)
        except AccessError as error:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        return work

    def _move(self, request: Request, runs: Sequence[Run], views: Sequence[memoryview]) -> None:
        qp = self._qp
        pieces.copy(views, request.payload)
        note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)
