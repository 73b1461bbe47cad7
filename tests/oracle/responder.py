"""Consequences of a request that arrives (InfiniBand vol. 1, 9.7.4)."""

from __future__ import annotations

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import ATOMICS, PSN_MASK, Op, Syndrome
from bluebridge.device.rdma.memory.region import Rights
from tests.oracle.memory import BY_PEER, Fault, Span
from tests.oracle.pair import PD, Pair, Receive
from tests.oracle.work import UNRELIABLE, WRITES, Completion, Sge

RECEIVING = ("RTR", "RTS", "SQD", "SQER")
INVALID = Syndrome.NAK_INVALID_REQUEST, EventType.WQ_INVALID_REQUEST
"""How something is refused that makes no sense, or that the queue pair does not permit."""
FORBIDDEN = Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR
"""The same for what a key does not permit."""
HALF = 1 << 23
"""A PSN this far ahead of another, or farther, is behind it."""


def atomic(op: Op, value: int, operands: tuple[int, int, int, int]) -> int:
    """Return what is left of `value`: `operands` are swap or add, compare, mask of each.

    Written down here bit by bit (Linux `include/rdma/ib_verbs.h`).
    """
    first, compare, mask, compare_mask = operands
    if op is Op.COMPARE_SWAP:
        return first if value == compare else value
    if op is Op.FETCH_ADD:
        return (value + first) % (1 << 64)
    if op is Op.MASKED_COMPARE_SWAP:
        if value & compare_mask != compare & compare_mask:
            return value
        return value & ~mask | first & mask
    result = carry = 0
    for bit in range(64):
        total = (value >> bit & 1) + (first >> bit & 1) + carry
        result |= (total & 1) << bit
        carry = 0 if mask >> bit & 1 else total >> 1
    return result


class Refused(Exception):
    """A request that is refused: why, syndrome for the peer, event for software."""

    def __init__(self, clause: str, syndrome: Syndrome, event: EventType | None = None) -> None:
        super().__init__(clause)
        self.clause, self.syndrome, self.event = clause, syndrome, event


class Unready(Exception):
    """No receive is posted."""


class Responder(Pair):
    """The receiving half; `told`: a NAK for a gap, or of a missing receive, has been sent."""

    established = told = False

    def arrives(self, request: Request) -> None:
        """A request reaches the queue pair."""
        if self.state not in RECEIVING:
            return
        if not self.established and self.state == "RTR":
            self.side.events.add((EventType.COMM_EST, self.qpn), "10.3.1 RTR")
        self.established = True
        ahead = (request.psn - self.next_recv_psn) & PSN_MASK
        if not self.reliable:
            self._drop_or_do(request)
        elif ahead >= HALF:
            self._repeat(request)
        elif not ahead:
            self._next(request)
        elif not self.told:
            self.told = True
            self._answer(self.next_recv_psn, Syndrome.NAK_PSN, "9.7 out of sequence")

    def _answer(self, psn: int, syndrome: int, clause: str, data: bytes = b"") -> None:
        self.answers.add((psn, syndrome, data), clause)

    def answered(self, response: Response) -> None:
        """An answer leaves. Raises `Broken`."""
        self.answers.comes((response.psn, response.syndrome, data_of(response)))

    def _next(self, request: Request) -> None:
        self.told = False
        try:
            data = self._do(request)
        except Unready:
            self.told = True
            self._answer(request.psn, Syndrome.RNR_NAK | self.min_rnr_timer, "9.7 RNR NAK")
        except Refused as refused:
            self._answer(request.psn, refused.syndrome, refused.clause)
            self.enter_error(refused.event, "9.9 responder errors")
        else:
            self.next_recv_psn = (self.next_recv_psn + request.packets) & PSN_MASK
            self._answer(request.psn, Syndrome.ACK, "9.7 expected PSN", data)

    def _drop_or_do(self, request: Request) -> None:
        try:
            if request.op in UNRELIABLE:
                self._do(request)
        except Unready:
            return
        except Refused as refused:
            if refused.event is None:  # a receive was spent on it
                self.enter_error(clause="9.8 UC")

    def _repeat(self, request: Request) -> None:
        """A duplicate: reads are read again, nothing is changed a second time."""
        data = b""
        if request.op in ATOMICS:
            if request.psn in self.results:
                data = self.results[request.psn]
                self._answer(request.psn, Syndrome.ACK, "9.7 duplicate atomics", data)
            return
        if request.op is Op.READ:
            try:
                data = self._do(request)
            except Refused:
                return
        self._answer(request.psn, Syndrome.ACK, "9.7 duplicates", data)

    # -- operations -----------------------------------------------------------------------------

    def _do(self, request: Request) -> bytes:
        memory = self.side.memory
        if request.op in ATOMICS:
            return self._atomic(request)
        if request.op is Op.READ:
            return memory.read(self._remote(request, self.remote_read, Rights.REMOTE_READ))
        if request.op not in WRITES:
            self._send(request)
            return b""
        spans = self._remote(request, self.remote_write, Rights.REMOTE_WRITE)
        receive = self._take() if request.op is Op.WRITE_IMM else None
        memory.write(spans, b"".join(request.payload))
        if receive is not None:
            self._complete(receive, request)
        return b""

    def _remote(self, request: Request, permitted: int, right: int) -> list[Span]:
        if not permitted:
            raise Refused("10.2.3 access flags of a queue pair", *INVALID)
        try:
            sge = Sge(request.rkey, request.remote_address, request.length)
            return self.side.memory.resolve(sge, right, PD, self.qpn)
        except Fault as fault:
            raise Refused("9.7 R_Key", *FORBIDDEN) from fault

    def _atomic(self, request: Request) -> bytes:
        if request.remote_address % 8:
            raise Refused("9.4 atomics", *INVALID)
        spans = self._remote(request, self.remote_atomic, Rights.REMOTE_ATOMIC)
        found = self.side.memory.read(spans)
        value = atomic(request.op, int.from_bytes(found, "little"), request.atomic)
        self.side.memory.write(spans, value.to_bytes(8, "little"))
        self.results[request.psn] = found
        return found

    def _send(self, request: Request) -> None:
        number, sges = receive = self._take()
        if request.length > sum(sge.length for sge in sges):
            raise self._lost(number, "9.7 length", CompletionStatus.LOCAL_LENGTH_ERR)
        try:
            spans = self.scatter(sges, request.length)
        except Fault as fault:
            clause = "9.7 receive memory"
            raise self._lost(number, clause, CompletionStatus.LOCAL_PROT_ERR) from fault
        if request.op is Op.SEND_INV:
            try:
                self.side.memory.invalidate(request.immediate, PD, self.qpn, BY_PEER)
            except Fault as fault:
                self._lost(number, BY_PEER, CompletionStatus.LOCAL_ACCESS_ERR)
                raise Refused(BY_PEER, *FORBIDDEN) from fault
        self.side.memory.write(spans, b"".join(request.payload))
        self._complete(receive, request)

    def _take(self) -> Receive:
        if not self.receives:
            raise Unready
        return self.receives.popleft()

    def _lost(self, number: int, clause: str, status: CompletionStatus) -> Refused:
        self.received.add(Completion(number, int(status)), clause)
        too_long = status is CompletionStatus.LOCAL_LENGTH_ERR
        syndrome = Syndrome.NAK_INVALID_REQUEST if too_long else Syndrome.NAK_REMOTE_OPERATION
        return Refused(clause, syndrome)

    def _complete(self, receive: Receive, request: Request) -> None:
        immediate = 0 if request.op is Op.SEND else request.immediate
        done = Completion(receive[0], 0, request.op, request.length, immediate, self.peer_qpn)
        self.received.add(done, "10.2.9 SRQ" if self.shared else "9.5 ordering")


def data_of(response: Response) -> bytes:
    """Return what an answer brings, as memory has it."""
    if response.atomic_original is not None:
        return response.atomic_original.to_bytes(8, "little")
    return b"".join(response.payload)
