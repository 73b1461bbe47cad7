"""The memory and receives that a connected peer reaches, with all checks of what it may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Payload, Request
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import ATOMICS, Op, Syndrome
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.connected.responder import Nak, NotPresent, invalid, operate
from bluebridge.device.rdma.memory.region import AbsentError, AccessError, Rights
from bluebridge.device.rdma.memory.scatter_gather import WRITE, note_runs, stretch
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import ReceiveQueue, SharedReceiveQueue
from bluebridge.device.rdma.vocabulary import (
    ATOMIC_SIZE,
    RELIABLE,
    AsyncEvent,
    CompletionStatus,
    Role,
)
from bluebridge.device.rdma.work import ReceiveWork

_REMOTE_READ: Final = int(Rights.REMOTE_READ)
_REMOTE_WRITE: Final = int(Rights.REMOTE_WRITE)
_REMOTE_ATOMIC: Final = int(Rights.REMOTE_ATOMIC)
_MASKED: Final = (Op.MASKED_COMPARE_SWAP, Op.MASKED_FETCH_ADD)
_SIZES: Final = (4, ATOMIC_SIZE)
_LOOKED_AHEAD: Final = 1 << 22
"""Most bytes of a read whose pages are looked for before its first byte leaves."""
_RECEIVE_FAILURE: Final = {CompletionStatus.LOCAL_LENGTH_ERR: Syndrome.NAK_INVALID_REQUEST}


def remote_access(error: Exception) -> Nak:
    """Return the refusal of a remote address that is not permitted or is not memory."""
    return Nak(Syndrome.NAK_REMOTE_ACCESS, AsyncEvent.WQ_ACCESS_ERROR, str(error))


class RemoteMemory:
    """The memory and receives that one queue pair lets its peer reach.

    `_receive` is the receive that a message moves into. `_awaits` says that absent pages were asked
    for and have not come, `_denied` that they will not: the next access is refused if its pages are
    absent.

    Requests of XRC name an SRQ, which must be in the queue pair's XRC domain (annex A14; Linux
    `ib/qp.c: create_qp_common`, `ib/srq.c`, rdma-core `providers/mlx4/cq.c`). Receives, protection
    domain and completions are those of `_srq`, the last one named.
    """

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._pd = qp.pd
        self._xrc = qp.role is Role.XRC
        self._srq: SharedReceiveQueue | None = None
        self._receive: ReceiveWork | None = None
        self._reliable = qp.role in RELIABLE
        self._awaits = self._denied = False

    def resume(self, *, failed: bool) -> None:
        """Take note that the absent pages are there, or that they will not come."""
        self._awaits, self._denied = False, failed

    def flush(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""
        work, self._receive = self._receive, None
        if work is not None:
            self._fail_receive(work, CompletionStatus.WR_FLUSH_ERR)

    def choose_srq(self, request: Request) -> None:
        if not self._xrc:
            return
        qp, srqn = self._qp, request.srqn or 0
        srq = qp.srqs.get(srqn)
        if srq is None or srq.xrcd != qp.xrcd:
            raise invalid(f"SRQ {srqn:#x} is not in XRC domain {qp.xrcd}")
        self._srq, self._pd = srq, srq.pd

    # -- memory -----------------------------------------------------------------------------------

    def check_end(self, request: Request, end: int) -> None:
        with suppress(AbsentError):  # that is looked at when its turn comes
            self._range(request, end - 1, 1)

    def write(self, request: Request, *, notifies: bool, left: int) -> bool:
        runs = self._present(request, request.remote_address, request.length, left)
        views = self._views(runs)
        if notifies and not self.take_receive():
            return False
        self._move(request.payload, runs, views)
        return True

    def read(self, request: Request, offset: int, length: int) -> Payload:
        left = request.length - offset
        runs = self._present(request, request.remote_address + offset, length, left)
        views = self._views(runs)
        note_runs(self._qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, self._qp.qpn)
        return views

    def check_present(self, request: Request) -> None:
        try:
            length = min(request.length, _LOOKED_AHEAD)
            self._range(request, request.remote_address, length)
        except AbsentError as error:
            self._await_peer(error, request, request.remote_address, request.length)
        except Nak:
            pass  # it is refused where it is read

    def operate(self, request: Request) -> int:
        qp, size = self._qp, request.length if request.op in _MASKED else ATOMIC_SIZE
        if size not in _SIZES:
            raise invalid(f"an atomic of {size} bytes")
        if request.remote_address & (size - 1):
            raise invalid("unaligned atomic")
        runs = self._present(request, request.remote_address, size, size)
        views = self._views(runs)  # two, where a border of memory regions cuts the word
        note_runs(qp.bus, Kind.DMA_READ, runs, views, What.PAYLOAD, qp.qpn)
        original = int.from_bytes(b"".join(views), "little")  # as the host has integers
        result = operate(request.op, original, request.atomic) & ((1 << 8 * size) - 1)
        self._move([memoryview(result.to_bytes(size, "little"))], runs, views)
        return original

    def repeat_refused(self) -> None:
        self._qp.bus.tell(Fact.REPEATED_READ_REFUSED, qpn=self._qp.qpn)

    def carried_out(self, op: Op) -> None:
        self._qp.diagnostics.carried_out(op)

    def _present(self, request: Request, address: int, length: int, left: int) -> Sequence[Run]:
        """Return where bytes at a remote address lie; raises `Nak`, and `NotPresent`.

        `left` are the bytes of the message from there on: its pages are best brought in together.
        """
        try:
            runs = self._range(request, address, length)
        except AbsentError as error:
            return self._await_peer(error, request, address, left)
        self._denied = False
        return runs

    def _await_peer(
        self, error: AbsentError, request: Request, address: int, left: int
    ) -> NoReturn:
        """Have pages of remote memory brought in, and raise `NotPresent`; raises `Nak`."""
        paging, key, changes = self._qp.paging, request.rkey, request.op is not Op.READ
        self._await(error, lambda: paging.for_peer(key, address, left, changes=changes))
        raise NotPresent from error

    def _await(self, error: AbsentError, ask: Callable[[], bool]) -> None:
        """Have absent pages brought in, once; raises `Nak` where they cannot be."""
        if self._awaits:
            return
        denied, self._denied = self._denied, False
        if denied or not self._reliable or not ask():
            raise remote_access(error) from error
        self._awaits = True

    def _range(self, request: Request, address: int, length: int) -> Sequence[Run]:
        """Return where bytes at a remote address lie; raises `Nak` and `AbsentError`."""
        qp = self._qp
        if request.op in ATOMICS:
            return self._remote(request, qp.remote_atomic, _REMOTE_ATOMIC, address, length)
        if request.op is Op.READ:
            return self._remote(request, qp.remote_read, _REMOTE_READ, address, length)
        return self._remote(request, qp.remote_write, _REMOTE_WRITE, address, length)

    def _remote(
        self, request: Request, allowed: bool, right: int, address: int, length: int
    ) -> Sequence[Run]:
        """Return where remote bytes lie; raises `Nak` and `AbsentError`."""
        qp = self._qp
        if not allowed:
            raise invalid("the queue pair does not permit it")
        try:
            return qp.regions.resolve(request.rkey, address, length, right, self._pd, qpn=qp.qpn)
        except AbsentError:
            raise
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

    # -- receives ---------------------------------------------------------------------------------

    def take_receive(self) -> bool:
        if self._receive is not None:
            return True  # of a message of UC that broke off
        queue: ReceiveQueue | None = self._srq if self._xrc else self._qp.receives
        try:
            self._receive = queue.take() if queue is not None else None
        except DmaError as error:
            event = AsyncEvent.WQ_CATAS_ERROR
            raise Nak(Syndrome.NAK_REMOTE_OPERATION, event, str(error)) from error
        return self._receive is not None

    def room(self) -> int:
        return 0 if self._receive is None else sum(sge[2] for sge in self._receive.sges)

    def place(self, request: Request, offset: int, *, ends: bool) -> None:
        """Check the receive, its memory and the key to invalidate, then copy; raises `Nak`."""
        qp, part, length, work = self._qp, request.part, request.length, self._receive
        if work is None:  # flushed in the middle of its message
            raise invalid("no receive is taken")
        self._receive = None  # whatever fails below completes it
        total = max(offset + length, 0 if part is None else part.total)
        if total > sum(sge[2] for sge in work.sges):
            raise self._failed(work, CompletionStatus.LOCAL_LENGTH_ERR, "the message is too long")
        try:
            if part is not None and not offset and part.total:
                qp.memory.check(work.sges, total, WRITE, work.pd)
            sges = work.sges if part is None else stretch(work.sges, offset, length)
            runs = qp.memory.scatter(sges, length, work.pd)
            views = qp.bus.views(runs) if runs else ()
        except AbsentError as absent:
            self._await_receive(absent, work, total - offset, offset)
            self._receive = work
            raise NotPresent from absent
        except (AccessError, DmaError) as error:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error
        self._denied = False
        if ends and request.op is Op.SEND_INV:
            self._invalidate(work, request.immediate)
        self._move(request.payload, runs, views)
        self._receive = work

    def _await_receive(self, error: AbsentError, work: ReceiveWork, length: int, done: int) -> None:
        """Have the pages of a receive brought in; raises `Nak` where they cannot be."""
        qp = self._qp
        srqn = qp.srqn if self._srq is None else self._srq.srqn
        number = -1 if srqn is None else srqn
        try:
            self._await(error, lambda: qp.paging.for_receive(work.index, number, length, done))
        except Nak as nak:
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from nak

    def complete(self, request: Request, length: int) -> None:
        """Complete the receive of a whole message; that of an SRQ names the SRQ as its source."""
        qp, srq, work = self._qp, self._srq, self._receive
        self._receive = None
        if work is not None:
            qp.completions.complete_receive(
                work.index,
                request.op,
                length,
                qp.remote_qpn if srq is None else srq.srqn,
                request.immediate,
                request.solicited,
                -1 if srq is None else srq.cqn,
            )

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

    def _fail_receive(self, work: ReceiveWork, status: CompletionStatus) -> None:
        srq, completions = self._srq, self._qp.completions
        if srq is None:
            completions.fail_receive(work.index, status)
        else:
            completions.fail_receive(work.index, status, srq.cqn, srq.srqn)
