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
from tests.models.verbs_model.world import QueuePair, Side

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


class Responder(QueuePair):
    """The receiving half: `expected_psn` is that of the next request."""

    def __init__(self, side: Side, slot: int) -> None:
        super().__init__(side, slot)
        self.expected_psn = 0
        self.established = False
        self._told = False  # of a gap, or that no receive is there
        self._results: dict[int, bytes] = {}

    def respond(self, request: Request) -> Answer | None:
        if self.state not in RECEIVING:
            return None
        if not self.established:
            self.established = True
            if self.state is State.RTR:
                self.event(EventType.COMM_EST)
        if not self.reliable:
            self._unreliable(request)
            return None
        if request.psn == self.expected_psn:
            return self._expected(request)
        if behind(request.psn, self.expected_psn):
            return self._repeat(request)
        if self._told:
            return None
        self._told = True
        return Answer(self.expected_psn, Syndrome.NAK_PSN)

    def _expected(self, request: Request) -> Answer:
        self._told = False
        try:
            data = self._do(request)
        except Unready:
            self._told = True
            return Answer(request.psn, Syndrome.RNR_NAK | self.rnr_timer)
        except Refused as refused:
            self.enter_error(refused.event)
            return Answer(request.psn, refused.syndrome)
        self.expected_psn = (self.expected_psn + request.packets) & PSN_MASK
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
                self.enter_error()

    def _repeat(self, request: Request) -> Answer | None:
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
            flag = self.remote_read
            spans = self._remote(request, flag, Rights.REMOTE_READ, request.work.length)
            return self.side.memory.read(spans)
        else:
            self._write(request)
        return b""

    def _remote(self, request: Request, permitted: bool, right: int, length: int) -> list[Span]:
        work = request.work
        if not permitted:
            raise Refused(Syndrome.NAK_INVALID_REQUEST, EventType.WQ_INVALID_REQUEST)
        try:
            sge = (work.rkey, work.remote, length)
            spans = self.side.protection.resolve(sge, right, self.pd, self.qpn)
            self.side.memory.check(spans)
        except Fault as fault:
            raise Refused(Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR) from fault
        return spans

    def _write(self, request: Request) -> None:
        flag = self.remote_write
        spans = self._remote(request, flag, Rights.REMOTE_WRITE, len(request.payload))
        immediate = request.work.opcode is SendOpcode.RDMA_WRITE_IMM
        receive = self._take() if immediate else None
        self.side.memory.write(spans, request.payload)
        if receive is not None:
            self._received(receive, request)

    def _atomic(self, request: Request) -> bytes:
        if request.work.remote % 8:
            raise Refused(Syndrome.NAK_INVALID_REQUEST, EventType.WQ_INVALID_REQUEST)
        memory = self.side.memory
        spans = self._remote(request, self.remote_atomic, Rights.REMOTE_ATOMIC, 8)
        found = memory.read(spans)
        value = atomic(request.work.opcode, int.from_bytes(found, "little"), request.work.operands)
        memory.write(spans, value.to_bytes(8, "little"))
        self._results[request.psn] = found
        return found

    def _send(self, request: Request) -> None:
        work = request.work
        receive = self._take()
        if len(request.payload) > sum(sge[2] for sge in receive.sges):
            raise self._lost(receive, CompletionStatus.LOCAL_LENGTH_ERR)
        try:
            spans = self.scatter(receive.sges, len(request.payload))
        except Fault as fault:
            raise self._lost(receive, CompletionStatus.LOCAL_PROT_ERR) from fault
        if work.opcode is SendOpcode.SEND_INVAL:
            try:
                self.side.protection.invalidate(work.immediate, self.pd, self.qpn, remote=True)
            except Fault as fault:
                self._lost(receive, CompletionStatus.LOCAL_ACCESS_ERR)
                raise Refused(Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR) from fault
        self.side.memory.write(spans, request.payload)
        self._received(receive, request)

    def _take(self) -> Receive:
        if not self.receives:
            raise Unready
        return self.receives.popleft()

    def _lost(self, receive: Receive, status: CompletionStatus) -> Refused:
        self.tell(Completion(False, receive.index, status))
        if status is CompletionStatus.LOCAL_LENGTH_ERR:
            return Refused(Syndrome.NAK_INVALID_REQUEST, None)
        return Refused(Syndrome.NAK_REMOTE_OPERATION, None)

    def _received(self, receive: Receive, request: Request) -> None:
        work = request.work
        opcode, immediate = OPCODES[work.opcode], 0
        if work.opcode is not SendOpcode.SEND:
            immediate = work.immediate
        length, source = len(request.payload), self.peer_qpn
        self.tell(Completion(False, receive.index, 0, opcode, length, immediate, source))
