"""The model's responder: what a request does, or why it is refused (InfiniBand vol. 1, 9.7.4)."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.cqe import CompletionStatus, RecvOpcode
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.values import (
    ATOMICS,
    SENDS,
    UNRELIABLE,
    Answer,
    Completion,
    Fault,
    Receive,
    Request,
    Span,
    State,
)
from tests.models.verbs_model.views import PairView

MASK = (1 << 64) - 1


def atomic(opcode: SendOpcode, value: int, operands: tuple[int, int, int, int]) -> int:
    """Return what is left of `value`: `operands` are swap or add, compare, mask of each.

    Atomics are written down here once more, bit by bit (Linux `include/rdma/ib_verbs.h`).
    """
    first, compare, mask, compare_mask = operands
    if opcode is SendOpcode.ATOMIC_CS:
        return first if value == compare else value
    if opcode is SendOpcode.ATOMIC_FA:
        return (value + first) % (1 << 64)
    if opcode is SendOpcode.MASKED_ATOMIC_CS:
        if value & compare_mask != compare & compare_mask:
            return value
        return value & ~mask | first & mask
    result = carry = 0
    for bit in range(64):
        total = (value >> bit & 1) + (first >> bit & 1) + carry
        result |= (total & 1) << bit
        carry = 0 if mask >> bit & 1 else total >> 1
    return result


PSN_MASK = 0xFFFFFF
RECEIVING = (State.RTR, State.RTS, State.SQD, State.SQER)
OPCODES = {
    SendOpcode.SEND: RecvOpcode.SEND,
    SendOpcode.SEND_IMM: RecvOpcode.SEND_WITH_IMM,
    SendOpcode.SEND_INVAL: RecvOpcode.SEND_WITH_INVALIDATE,
    SendOpcode.RDMA_WRITE_IMM: RecvOpcode.RDMA_WRITE_WITH_IMM,
}


class Refused(Exception):
    """A request that is refused: syndrome for the peer, event for software."""

    def __init__(self, syndrome: int, event: EventType | None) -> None:
        super().__init__()
        self.syndrome = syndrome
        self.event = event


class Unready(Exception):
    """No receive is posted."""


def behind(psn: int, other: int) -> bool:
    """Whether `psn` comes before `other`."""
    return (psn - other) & PSN_MASK >= 1 << 23


class ResponderModel:
    """`psn` is the one expected next."""

    def __init__(self, pair: PairView) -> None:
        self.pair = pair
        self.psn = 0
        self.established = False
        self._told = False  # of a gap, or that no receive is there
        self._results: dict[int, bytes] = {}

    def respond(self, request: Request) -> Answer | None:
        """Carry out a request of the peer; None when nothing is said."""
        pair = self.pair
        if pair.state not in RECEIVING:
            return None
        if not self.established:
            self.established = True
            if pair.state is State.RTR:
                pair.event(EventType.COMM_EST)
        if not pair.reliable:
            self._unreliable(request)
            return None
        if request.psn == self.psn:
            return self._expected(request)
        if behind(request.psn, self.psn):
            return self._again(request)
        if self._told:
            return None
        self._told = True
        return Answer(self.psn, Syndrome.NAK_PSN)

    def _expected(self, request: Request) -> Answer:
        self._told = False
        try:
            data = self._do(request)
        except Unready:
            self._told = True
            return Answer(request.psn, Syndrome.RNR_NAK | self.pair.rnr_timer)
        except Refused as refused:
            self.pair.enter_error(refused.event)
            return Answer(request.psn, refused.syndrome)
        self.psn = (self.psn + request.packets) & PSN_MASK
        return Answer(request.psn, Syndrome.ACK, data)

    def _unreliable(self, request: Request) -> None:
        if request.work.opcode not in UNRELIABLE:
            return
        try:
            self._do(request)
        except Unready:
            return
        except Refused as refused:
            if refused.event is None:
                self.pair.enter_error()

    def _again(self, request: Request) -> Answer | None:
        """A duplicate: reads are read again, nothing is changed a second time."""
        opcode = request.work.opcode
        if opcode is SendOpcode.RDMA_READ:
            try:
                return Answer(request.psn, Syndrome.ACK, self._do(request))
            except Refused:
                return None
        if opcode in ATOMICS:
            result = self._results.get(request.psn)
            return None if result is None else Answer(request.psn, Syndrome.ACK, result)
        return Answer(request.psn, Syndrome.ACK)

    # -- operations -----------------------------------------------------------------------------

    def _do(self, request: Request) -> bytes:
        opcode = request.work.opcode
        if opcode in SENDS:
            self._send(request)
        elif opcode in ATOMICS:
            return self._atomic(request)
        elif opcode is SendOpcode.RDMA_READ:
            flag = self.pair.remote_read
            spans = self._remote(request, flag, Rights.REMOTE_READ, request.work.length)
            return self.pair.side.memory.read(spans)
        else:
            self._write(request)
        return b""

    def _remote(self, request: Request, permitted: bool, right: int, length: int) -> list[Span]:
        pair, work = self.pair, request.work
        if not permitted:
            raise Refused(Syndrome.NAK_INVALID_REQUEST, EventType.WQ_INVALID_REQUEST)
        try:
            sge = (work.rkey, work.remote, length)
            spans = pair.side.protection.resolve(sge, right, pair.pd, pair.qpn)
            pair.side.memory.check(spans)
        except Fault as fault:
            raise Refused(Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR) from fault
        return spans

    def _write(self, request: Request) -> None:
        flag = self.pair.remote_write
        spans = self._remote(request, flag, Rights.REMOTE_WRITE, len(request.payload))
        immediate = request.work.opcode is SendOpcode.RDMA_WRITE_IMM
        receive = self._take() if immediate else None
        self.pair.side.memory.write(spans, request.payload)
        if receive is not None:
            self._received(receive, request)

    def _atomic(self, request: Request) -> bytes:
        if request.work.remote % 8:
            raise Refused(Syndrome.NAK_INVALID_REQUEST, EventType.WQ_INVALID_REQUEST)
        memory = self.pair.side.memory
        spans = self._remote(request, self.pair.remote_atomic, Rights.REMOTE_ATOMIC, 8)
        found = memory.read(spans)
        value = atomic(request.work.opcode, int.from_bytes(found, "little"), request.work.operands)
        memory.write(spans, value.to_bytes(8, "little"))
        self._results[request.psn] = found
        return found

    def _send(self, request: Request) -> None:
        pair, work = self.pair, request.work
        receive = self._take()
        if len(request.payload) > sum(sge[2] for sge in receive.sges):
            raise self._lost(receive, CompletionStatus.LOCAL_LENGTH_ERR)
        try:
            spans = pair.scatter(receive.sges, len(request.payload))
        except Fault as fault:
            raise self._lost(receive, CompletionStatus.LOCAL_PROT_ERR) from fault
        if work.opcode is SendOpcode.SEND_INVAL:
            try:
                pair.side.protection.invalidate(work.immediate, pair.pd, pair.qpn, remote=True)
            except Fault as fault:
                self._lost(receive, CompletionStatus.LOCAL_ACCESS_ERR)
                raise Refused(Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR) from fault
        pair.side.memory.write(spans, request.payload)
        self._received(receive, request)

    def _take(self) -> Receive:
        if not self.pair.receives:
            raise Unready
        return self.pair.receives.popleft()

    def _lost(self, receive: Receive, status: CompletionStatus) -> Refused:
        self.pair.tell(Completion(False, receive.index, status))
        if status is CompletionStatus.LOCAL_LENGTH_ERR:
            return Refused(Syndrome.NAK_INVALID_REQUEST, None)
        return Refused(Syndrome.NAK_REMOTE_OPERATION, None)

    def _received(self, receive: Receive, request: Request) -> None:
        work, pair = request.work, self.pair
        opcode, immediate = OPCODES[work.opcode], 0
        if work.opcode is not SendOpcode.SEND:
            immediate = work.immediate
        length, source = len(request.payload), pair.peer_qpn
        pair.tell(Completion(False, receive.index, 0, opcode, length, immediate, source))
