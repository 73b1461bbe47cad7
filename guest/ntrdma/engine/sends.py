"""The send queue of an own queue pair: requests wait, then fly, then complete, all in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.completions import CompletionQueue, Schedule
from bluebridge.guest.ntrdma.engine.memory import (
    COMPLETION,
    Ring,
    Word,
    advanced,
    distance,
    rings,
    send_size,
)
from bluebridge.guest.ntrdma.engine.regions import Segment
from bluebridge.guest.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.enums import SendFlags, WcOpcode, WcStatus, WrOpcode
from bluebridge.guest.verbs.values import SendWr, Sge, Wc

_OPCODES: dict[WrOpcode, tuple[WorkCode | None, WcOpcode]] = {
    WrOpcode.SEND: (WorkCode.SEND, WcOpcode.SEND),
    WrOpcode.SEND_WITH_INV: (WorkCode.SEND_INVALIDATE, WcOpcode.SEND),
    WrOpcode.SEND_WITH_IMM: (WorkCode.SEND_IMMEDIATE, WcOpcode.SEND),
    WrOpcode.RDMA_WRITE_WITH_IMM: (WorkCode.WRITE_IMMEDIATE, WcOpcode.RDMA_WRITE),
    WrOpcode.RDMA_WRITE: (WorkCode.WRITE, WcOpcode.RDMA_WRITE),
    WrOpcode.RDMA_READ: (WorkCode.READ, WcOpcode.RDMA_READ),
    WrOpcode.REG_MR: (None, WcOpcode.REG_MR),
    WrOpcode.LOCAL_INV: (None, WcOpcode.LOCAL_INV),
    WrOpcode.NOP: (None, WcOpcode.NOP),
}
"""The opcodes of a request's entry, None if it is carried out by commands, and completion."""
_SIGNALED, _SOLICITED = int(SendFlags.SIGNALED), int(SendFlags.SOLICITED)
_FENCE = int(SendFlags.FENCE)

STATUSES: dict[int, WcStatus] = {
    WorkStatus.OK: WcStatus.SUCCESS,
    WorkStatus.ABORTED: WcStatus.WR_FLUSH_ERR,
    WorkStatus.OPCODE: WcStatus.REM_INV_REQ_ERR,
    WorkStatus.RECV_NOT_READY: WcStatus.RETRY_EXC_ERR,
    WorkStatus.RECV_MISSING: WcStatus.RNR_RETRY_EXC_ERR,
    WorkStatus.RECV_OVERFLOW: WcStatus.REM_INV_REQ_ERR,
    WorkStatus.RDMA_KEY: WcStatus.REM_ACCESS_ERR,
    WorkStatus.RDMA_RANGE: WcStatus.REM_ACCESS_ERR,
    WorkStatus.RDMA_ACCESS: WcStatus.REM_ACCESS_ERR,
    WorkStatus.LOCAL_PROTECTION: WcStatus.LOC_PROT_ERR,
    WorkStatus.QUEUE_ACCESS: WcStatus.REM_INV_REQ_ERR,
    WorkStatus.NO_PEER: WcStatus.RETRY_EXC_ERR,
}
"""The statuses of completions; any other of the peer is a remote operation error."""


@dataclass(slots=True, eq=False)
class SendRequest:
    """A posted request, copied since users change theirs as soon as it is posted."""

    sequence: int
    wr_id: int
    code: WorkCode | None
    """The opcode of its entry; None for one that is carried out here, which is `local`."""
    opcode: WcOpcode
    """The opcode of its completion."""
    signaled: bool
    solicited: bool
    fenced: bool
    """True if it leaves when all reads before it have ended."""
    pieces: tuple[Sge, ...]
    length: int
    staged: list[Segment] | None
    """The place of inline data."""
    rdma_address: int
    rdma_key: int
    immediate: int
    """The immediate, or the key to invalidate of a SEND_WITH_INV."""
    local: SendWr | None
    ending: WcStatus | None = None
    """The way it has ended, while requests before it have not."""


def send_request(
    wr: SendWr, sequence: int, signal_all: bool, staged: list[Segment] | None
) -> SendRequest:
    """Return the record of a request; `staged` is its inline data's place. Raises `VerbsError`."""
    if wr.opcode not in _OPCODES:
        raise VerbsError(f"NTRDMA has no {wr.opcode.name}")
    code, opcode = _OPCODES[wr.opcode]
    pieces = () if staged is not None else tuple(wr.sg_list)
    flags = int(wr.send_flags)
    return SendRequest(
        sequence,
        wr.wr_id,
        code,
        opcode,
        signal_all or flags & _SIGNALED != 0,
        flags & _SOLICITED != 0,
        flags & _FENCE != 0,
        pieces,
        staged[0][1] if staged else sum(piece[1] for piece in pieces),
        staged,
        wr.remote_addr,
        wr.rkey,
        wr.invalidate_rkey if code is WorkCode.SEND_INVALIDATE else wr.imm,
        _copied(wr) if code is None else None,
    )


def _copied(wr: SendWr) -> SendWr:
    return SendWr(
        wr.wr_id,
        wr.opcode,
        invalidate_rkey=wr.invalidate_rkey,
        mr=wr.mr,
        pages=tuple(wr.pages),
        page_size=wr.page_size,
        key=wr.key,
        access=wr.access,
        iova=wr.iova,
        length=wr.length,
    )


class SendQueue:
    """The requests of one queue pair, up to `capacity` with up to `pieces` pieces each."""

    def __init__(
        self,
        transport: Transport,
        qpn: int,
        capacity: int,
        pieces: int,
        inline: int,
        cq: CompletionQueue,
        consumed: Word,
        schedule: Schedule,
    ) -> None:
        self.capacity, self.pieces = max(1, capacity), pieces
        self.queue: deque[SendRequest] = deque()
        """The requests that are posted and of which nothing is done yet."""
        self.flying: deque[SendRequest] = deque()
        """The requests that are under way, in order; one behind another may have ended."""
        self._unanswered: deque[SendRequest] = deque()
        """Those of them that were sent to the peer, which has not completed them."""
        self.consumed_word = consumed
        self.produced = 0
        self._schedule = schedule
        self._most, self._most_inline = capacity, inline
        self._qpn, self._cq = qpn, cq
        sizes = send_size(pieces), COMPLETION.size, inline
        made = rings(transport, *((self.capacity, size) for size in sizes if size))
        self.ring, self.completions = made[:2]
        self._inline_ring: Ring | None = made[2] if inline else None
        self.consumed = 0
        self.posted = self.retired = 0
        self._broken = False
        self._done: deque[tuple[Wc, int]] = deque()
        cq.attach(self)

    # -- posting --------------------------------------------------------------------------------

    def post(self, wr: SendWr, signal_all: bool) -> None:
        """Take a request. Raises `VerbsError`."""
        if self.posted - self.retired >= self._most:
            raise VerbsError(f"the send queue of {self._most} entries is full")
        staged = None
        if wr.inline_data is not None:
            staged = self._put_inline(wr.inline_data)
        elif len(wr.sg_list) > self.pieces:
            raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a send entry")
        self.queue.append(send_request(wr, self.posted, signal_all, staged))
        self.posted += 1

    def _put_inline(self, data: bytes | bytearray | memoryview) -> list[Segment]:
        if self._inline_ring is None or len(data) > self._most_inline:
            raise VerbsError(f"{len(data)} inline bytes do not fit into a send entry")
        self._inline_ring.put(self.posted, bytes(data))
        slot = self.posted % self.capacity
        return [(self._inline_ring.address + slot * self._inline_ring.size, len(data))]

    # -- sending --------------------------------------------------------------------------------

    def held_by_reads(self, request: SendRequest) -> bool:
        """Return True if a request has to wait for reads in flight, whose target it may end."""
        waits = request.fenced or request.opcode is WcOpcode.LOCAL_INV
        return waits and any(each.code is WorkCode.READ for each in self._unanswered)

    def fly(self, entry: bytes) -> None:
        """Send the first request as `entry`; the ring is pushed to the peer afterwards."""
        self.ring.put(self.produced, entry)
        self.produced = advanced(self.produced, 1, self.capacity)
        self._unanswered.append(self.queue[0])
        self.flying.append(self.queue.popleft())

    def begin_local(self) -> None:
        """Begin the first request, which is not sent; `end_local` follows."""
        self.flying.append(self.queue.popleft())

    # -- completing -----------------------------------------------------------------------------

    def end_first(self, status: WcStatus) -> None:
        """End the first waiting request without the peer; none may be in flight."""
        self._complete(self.queue.popleft(), status)

    def end_local(self, request: SendRequest, status: WcStatus) -> None:
        """End a request that was not sent; it completes behind all before it."""
        request.ending = status
        self._retire()

    def collect(self) -> None:
        index = self.consumed_word.get()
        if index == self.consumed or self._broken:
            return
        count = distance(self.consumed, index, self.capacity)
        if index >= 2 * self.capacity or count > len(self._unanswered):
            self._break()
            return
        for _ in range(count):
            status: int = COMPLETION.unpack(self.completions.entry(self.consumed))[2]
            self.consumed = advanced(self.consumed, 1, self.capacity)
            self._unanswered.popleft().ending = STATUSES.get(status, WcStatus.REM_OP_ERR)
        self._retire()
        if self.queue and not self._broken:
            self._schedule.make_runnable(self._qpn)  # some may have waited for completions

    def _retire(self) -> None:
        """Complete what has ended, in order, up to the first error."""
        while self.flying and not self._broken:
            ending = self.flying[0].ending
            if ending is None:
                return
            request = self.flying.popleft()
            self._complete(request, ending, request.length if request.code is WorkCode.READ else 0)
            if ending is not WcStatus.SUCCESS:
                self._break()

    def flush(self) -> None:
        """End all requests."""
        self._broken = True
        self._unanswered.clear()
        for requests in (self.flying, self.queue):
            while requests:
                self._complete(requests.popleft(), WcStatus.WR_FLUSH_ERR)

    def _break(self) -> None:
        self._broken = True
        self._schedule.failed.append(self._qpn)

    def _complete(self, request: SendRequest, status: WcStatus, length: int = 0) -> None:
        good = status is WcStatus.SUCCESS
        if good and not request.signaled:
            return
        opcode = request.opcode if good else WcOpcode.SEND
        wc = Wc(request.wr_id, status, opcode, self._qpn, length)
        self._done.append((wc, request.sequence + 1))
        self._cq.added(solicited=not good)

    def clear(self) -> None:
        """Forget everything, completions too; the rings begin anew."""
        for each in (self.queue, self.flying, self._unanswered, self._done):
            each.clear()
        self.retired = self.posted
        self.twin_is_new()

    def twin_is_new(self) -> None:
        """Start the ring anew at index 0, as the peer's empty ring."""
        self.produced = self.consumed = 0
        self._broken = False
        self.consumed_word.set(0)

    def close(self) -> None:
        """Free the rings."""
        self._cq.detach(self)
        for ring in (self.ring, self.completions, self._inline_ring):
            if ring is not None:
                ring.free()

    # -- as a source of completions --------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        return bool(self._done)

    def take(self) -> Wc | None:
        """Return the oldest completion; frees its entry and those before it."""
        if not self._done:
            return None
        wc, self.retired = self._done.popleft()
        return wc
