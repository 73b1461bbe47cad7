"""One side of a history, and what both halves of its queue pairs share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.rdma.memory.region import Rights
from tests.oracle.clauses import Due, holds
from tests.oracle.memory import Memory, Span
from tests.oracle.work import Completion, Sge, Work

PD = 1
"""The protection domain of all queue pairs."""
FLUSHED = int(CompletionStatus.WR_FLUSH_ERR)
TRANSITIONS = {
    Opcode.INIT2INIT_QP: (("INIT",), "INIT"),
    Opcode.INIT2RTR_QP: (("INIT",), "RTR"),
    Opcode.RTR2RTS_QP: (("RTR",), "RTS"),
    Opcode.RTS2RTS_QP: (("RTS",), "RTS"),
    Opcode.SQERR2RTS_QP: (("SQER",), "RTS"),
    Opcode.RTS2SQD_QP: (("RTS", "SQD"), "SQD"),
    Opcode.SQD2SQD_QP: (("SQD",), "SQD"),
    Opcode.SQD2RTS_QP: (("SQD",), "RTS"),
    Opcode.TOERR_QP: (("INIT", "RTR", "RTS", "SQD", "SQER", "ERR"), "ERR"),
}
"""Where a command may start, and where it ends (InfiniBand vol. 1, 10.3.1)."""
Receive = tuple[int, Sequence[Sge]]
"""Its number in its queue, and its memory."""
Failure = tuple[CompletionStatus, str]
"""How a request ends, and the clause that asks for it."""


@dataclass
class Side:
    """One guest with its adapter; `now` is the time in seconds, `shared` its SRQ."""

    now: Callable[[], float]
    memory: Memory
    shared: deque[Receive] = field(default_factory=deque)
    events: Due[tuple[EventType, int]] = field(default_factory=lambda: Due("11.6.3 events by kind"))


@dataclass(eq=False)
class Posted:
    """A work request; `failure` of one that fails when its turn comes."""

    number: int
    work: Work
    psn: int = 0
    failure: Failure | None = None


class Pair:
    """A queue pair; `reliable` is RC, else UC; `shared`: it receives from the SRQ.

    What a transition sets has the name of its field in the context. `results` of atomics are by
    PSN. `ring` has not begun, `pending` has no answer yet, `again` is what is still to be sent
    again behind the oldest one.
    """

    mtu, msg_max, sra_max = 3, 30, 0
    remote_read = remote_write = remote_atomic = 0
    next_recv_psn = next_send_psn = 0
    min_rnr_timer = pri_ack_timeout = retry_count = rnr_retry = 0
    drains = last_told = False

    def __init__(
        self, side: Side, qpn: int, peer_qpn: int, *, reliable: bool, shared: bool
    ) -> None:
        self.side, self.qpn, self.peer_qpn = side, qpn, peer_qpn
        self.reliable, self.shared = reliable, shared
        self.state = "INIT"
        self.receives: deque[Receive] = side.shared if shared else deque()
        self.results: dict[int, bytes] = {}
        self.ring: deque[Posted] = deque()
        self.pending: deque[Posted] = deque()
        self.again: deque[Posted] = deque()
        self.sent: Due[Completion] = Due("9.5 ordering")
        self.received: Due[Completion] = Due("9.5 ordering")
        self.answers: Due[tuple[int, int, bytes]] = Due("9.6 BTH checks")

    def abort(self) -> None:
        """Everything that was posted to the send queue is flushed."""
        raise NotImplementedError

    def advance(self) -> None:
        """Take a step that needs no message."""
        raise NotImplementedError

    def transits(self, opcode: Opcode, values: Mapping[str, int], *, drains: bool = False) -> bool:
        """Software asks for a transition, perhaps for an event in SQD; return whether it may be."""
        sources, target = TRANSITIONS[opcode]
        if self.state not in sources:
            return False
        for name, value in values.items():
            setattr(self, name, value)
        if target == "ERR":
            self.enter_error()
        self.state = target
        self.drains = drains
        self.has_drained()
        self.advance()
        return True

    def has_drained(self) -> None:
        """In SQD software is told once nothing is under way any more."""
        if self.state == "SQD" and self.drains and not self.pending:
            self.drains = False
            self.side.events.add((EventType.SQ_DRAINED, self.qpn), "10.3.1 SQD")

    def receive(self, number: int, sges: Sequence[Sge]) -> None:
        """Software posts a receive; in ERR it is flushed."""
        self.receives.append((number, sges))
        if self.state == "ERR":
            self._flush_receives("10.3.1 ERR")

    def enter_error(self, event: EventType | None = None, clause: str = "10.3.1 ERR") -> None:
        """ERR: everything is flushed, and software is told of the reason."""
        if self.state == "ERR":
            return
        self.state = "ERR"
        if event is not None:
            self.side.events.add((event, self.qpn), "11.6.3 events by kind")
        self.abort()
        self._flush_receives(clause)
        if self.shared and not self.last_told:
            self.last_told = True
            self.side.events.add((EventType.SRQ_QP_LAST_WQE, self.qpn), "10.2.9 SRQ")

    def _flush_receives(self, clause: str) -> None:
        while self.receives and not self.shared:
            self.received.add(Completion(self.receives.popleft()[0], FLUSHED), clause)

    def gather(self, sges: Sequence[Sge]) -> bytes:
        """Return the bytes that a send or write carries. Raises `Fault`."""
        memory = self.side.memory
        resolved = (memory.resolve(sge, Rights.LOCAL_READ, PD, self.qpn) for sge in sges)
        return memory.read([span for spans in resolved for span in spans])

    def scatter(self, sges: Sequence[Sge], length: int) -> list[Span]:
        """Return where the first `length` bytes go. Raises `Fault`."""
        spans: list[Span] = []
        for key, va, size in sges:
            part = Sge(key, va, min(size, length))
            length -= part.length
            spans += self.side.memory.resolve(part, Rights.LOCAL_WRITE, PD, self.qpn)
        return spans

    def rests(self, state: str) -> None:
        """Nothing is left to happen now. Raises `Broken`."""
        for due in (self.sent, self.received, self.answers):
            due.is_nothing()
        holds(state == self.state, "10.3.1 states", f"{state} instead of {self.state}")
