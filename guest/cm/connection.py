"""The CM protocol of one connection: a state machine that sends MADs and reports to its owner.

No thread, socket or queue pair lives here. The owner calls in under one lock: `handle` for each
message, `expire` when `deadline` has passed, and the verbs `connect`, `accept`, `reject`,
`ready`, `disconnect`. What happens comes back through `tell`. InfiniBand vol. 1, 12.9.7; Linux
drivers/infiniband/core/cm.c takes the same ways through it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.net.cm import Answered, CmAttribute, RejectReason, cm_timeout_seconds
from bluebridge.guest.cm.interface import EventType, Peer
from bluebridge.guest.cm.messages import Message, encode

RESEND_SECONDS = 1.0
MAX_RETRIES = 7
TIMEWAIT_SECONDS = 1.0
STALE_SECONDS = 5.0
"""The time that a refused end stays for the DREQ of its queue pair's old connection."""
MRA_TIMEOUT_CODE = 24
"""The service timeout that the kernel's rdma_cm puts into an MRA: about 68 seconds (core/cma.c:

CMA_CM_MRA_SETTING).
"""


class State(Enum):
    """The state of a connection."""

    IDLE = auto()
    REQ_SENT = auto()
    STALE = auto()
    REQ_RECEIVED = auto()
    REP_RECEIVED = auto()
    REP_SENT = auto()
    ESTABLISHED = auto()
    DREQ_SENT = auto()
    DREQ_RECEIVED = auto()
    TIMEWAIT = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class Notice:
    """News of a connection for its owner: `CmEvent`'s status, and the message that caused it."""

    type: EventType
    status: int = 0
    message: Message | None = None


class CmConnection:
    """One connection: `local_id` is this side's id, `remote_id` the peer's (0 until known)."""

    def __init__(
        self,
        local_id: int,
        tid: int,
        peer: Peer,
        send: Callable[[bytes, Peer], None],
        clock: Callable[[], float],
        tell: Callable[[Notice], None],
    ) -> None:
        self.local_id = local_id
        self.remote_id = 0
        self.remote_qpn = 0
        self.peer = peer
        self.state = State.IDLE
        self.deadline: float | None = None
        self._tid = tid
        self._send = send
        self._clock = clock
        self._tell = tell
        self._waiting: bytes = b""
        self._last: bytes = b""
        self._retries = 0
        self._refusal: Message | None = None

    def connect(self, fields: Mapping[str, Value]) -> None:
        """Send the REQ on the active side and repeat it until an answer comes."""
        self._emit(CmAttribute.REQ, fields, State.REQ_SENT, repeat=True)

    def requested(self, request: Message) -> None:
        """Take the REQ `request`, which this connection answers, on the passive side."""
        self.remote_id = request["local_comm_id"]
        self.remote_qpn = request["local_qpn"]
        self._tid = request.tid
        self.state = State.REQ_RECEIVED

    def accept(self, fields: Mapping[str, Value]) -> None:
        """Send the REP on the passive side and repeat it until the RTU comes."""
        self._expect(State.REQ_RECEIVED, "accept")
        self._emit(CmAttribute.REP, fields, State.REP_SENT, repeat=True)

    def ready(self) -> None:
        """Send the RTU on the active side, whose queue pair can send now."""
        self._expect(State.REP_RECEIVED, "ready")
        self._emit(CmAttribute.RTU, {}, State.ESTABLISHED)

    def reject(self, reason: RejectReason, private_data: bytes = b"") -> None:
        """Refuse a REQ (passive side) or a REP (active side)."""
        self._expect((State.REQ_RECEIVED, State.REP_RECEIVED, State.REP_SENT), "reject")
        answered = Answered.REP if self.state is State.REP_RECEIVED else Answered.REQ
        fields: dict[str, Value] = {
            "answered": answered,
            "reason": reason,
            "private_data": private_data,
        }
        self._emit(CmAttribute.REJ, fields, State.DEAD)

    def disconnect(self) -> None:
        """Send a DREQ, or the DREP that the peer waits for; nothing when already over."""
        if self.state is State.DREQ_RECEIVED:
            self._emit(CmAttribute.DREP, {}, State.TIMEWAIT)
            self._linger()
        elif self.state in (State.ESTABLISHED, State.REP_SENT):
            fields: dict[str, Value] = {"remote_qpn": self.remote_qpn}
            self._emit(CmAttribute.DREQ, fields, State.DREQ_SENT, repeat=True)

    def abandon(self) -> None:
        """End the connection of a destroyed owner with the message that fits the state."""
        if self.state in (State.REQ_RECEIVED, State.REP_RECEIVED):
            self.reject(RejectReason.CONSUMER_DEFINED)
        elif self.state is State.REQ_SENT:
            fields = {"answered": Answered.REQ, "reason": RejectReason.TIMEOUT}
            self._emit(CmAttribute.REJ, fields, State.DEAD)
        elif self.state in (State.ESTABLISHED, State.REP_SENT, State.DREQ_RECEIVED):
            self.disconnect()
        elif self.state in (State.IDLE, State.STALE):
            self._settle(State.DEAD)

    def peer_lost(self) -> None:
        """End a connection whose peer is lost, and report to the owner.

        A REQ that waits for an answer goes to the next peer, which owes no patience.
        """
        if self.state is State.REQ_SENT:
            self._retries = 0
            self.deadline = self._clock() + RESEND_SECONDS
        elif self.state in (State.ESTABLISHED, State.REP_SENT, State.DREQ_SENT):
            self._settle(State.DEAD)
            self._tell(Notice(EventType.DISCONNECTED, -errno.ECONNRESET))

    def handle(self, message: Message) -> None:
        """Take one message from the peer; one that does not fit the state is dropped."""
        match message.kind:
            case CmAttribute.REQ:
                self._repeated_request()
            case CmAttribute.MRA:
                self._take_mra(message)
            case CmAttribute.REP:
                self._take_rep(message)
            case CmAttribute.RTU if self.state is State.REP_SENT:
                self._settle(State.ESTABLISHED)
                self._tell(Notice(EventType.ESTABLISHED, 0, message))
            case CmAttribute.REJ:
                self._take_rej(message)
            case CmAttribute.DREQ:
                self._take_dreq(message)
            case CmAttribute.DREP if self.state is State.DREQ_SENT:
                self._leave(0, message)

    def expire(self) -> None:
        """Act on a `deadline` that has passed: repeat, give up, or leave the time-wait state."""
        if self.state is State.TIMEWAIT:
            self._settle(State.DEAD)
            self._tell(Notice(EventType.TIMEWAIT_EXIT))
        elif self.state is State.STALE:
            self.old_connection_over()
        elif self._retries < MAX_RETRIES:
            self._retries += 1
            self.deadline = self._clock() + RESEND_SECONDS
            self._send(self._waiting, self.peer)
        elif self.state is State.DREQ_SENT:
            self._leave(-errno.ETIMEDOUT, None)
        else:
            self._settle(State.DEAD)
            self._tell(Notice(EventType.UNREACHABLE, -errno.ETIMEDOUT))

    def _repeated_request(self) -> None:
        """Repeat the answer that the peer did not get, or ask for more time by an MRA."""
        if self.state is State.REQ_RECEIVED:
            fields = {"answered": Answered.REQ, "service_timeout": MRA_TIMEOUT_CODE}
            self._emit(CmAttribute.MRA, fields, self.state)
        elif self.state is State.REP_SENT:
            self._send(self._last, self.peer)

    def _take_mra(self, message: Message) -> None:
        """Wait for as long as the peer's MRA asks, then repeat again."""
        if self.state in (State.REQ_SENT, State.REP_SENT):
            self._retries = 0
            patience = cm_timeout_seconds(message["service_timeout"])
            self.deadline = self._clock() + max(RESEND_SECONDS, patience)

    def _take_rep(self, message: Message) -> None:
        """Take the answer to the REQ, which comes again when the RTU was lost."""
        if self.state is State.REQ_SENT:
            self.remote_id = message["local_comm_id"]
            self.remote_qpn = message["local_qpn"]
            self._settle(State.REP_RECEIVED)
            self._tell(Notice(EventType.CONNECT_RESPONSE, 0, message))
        elif self.state is State.ESTABLISHED and message["local_comm_id"] == self.remote_id:
            self._send(self._last, self.peer)

    def _take_rej(self, message: Message) -> None:
        """Take the peer's refusal; it may no longer know this connection.

        A peer that calls the request stale sends right behind it the DREQ of the connection that it
        still has with this side's queue pair (core/cm.c: cm_match_req), and refuses until that DREQ
        is answered. So the user is told only after that, and the next request succeeds.
        """
        if self.state is State.REQ_SENT and message["reason"] == RejectReason.STALE_CONNECTION:
            self._settle(State.STALE)
            self._refusal = message
            self.deadline = self._clock() + STALE_SECONDS
        elif self.state in (State.REQ_SENT, State.REP_SENT, State.REP_RECEIVED):
            self._settle(State.DEAD)
            self._tell(Notice(EventType.REJECTED, message["reason"], message))
        elif self.state in (State.ESTABLISHED, State.DREQ_SENT):
            self._leave(0, message)

    def old_connection_over(self) -> None:
        """End the refused connection, which waited for the DREQ of an older one.

        That DREQ was answered, or will not come any more.
        """
        if self.state is State.STALE and self._refusal is not None:
            self._settle(State.DEAD)
            self._tell(Notice(EventType.REJECTED, self._refusal["reason"], self._refusal))

    def _take_dreq(self, message: Message) -> None:
        """Take the peer's DREQ; DREQs that cross each other are answered by both sides."""
        if self.state in (State.ESTABLISHED, State.REP_SENT):
            self._settle(State.DREQ_RECEIVED)
            self._tid = message.tid
            self._tell(Notice(EventType.DISCONNECTED, 0, message))
        elif self.state is State.DREQ_SENT:
            self._tid = message.tid
            self._emit(CmAttribute.DREP, {}, State.TIMEWAIT)
            self._linger()
            self._tell(Notice(EventType.DISCONNECTED, 0, message))
        elif self.state is State.TIMEWAIT:
            self._tid = message.tid
            self._emit(CmAttribute.DREP, {}, State.TIMEWAIT, keep_deadline=True)

    def _leave(self, status: int, message: Message | None) -> None:
        """Enter time-wait after the end of the connection, and report to the owner."""
        self._settle(State.TIMEWAIT)
        self._linger()
        self._tell(Notice(EventType.DISCONNECTED, status, message))

    def _linger(self) -> None:
        self.deadline = self._clock() + TIMEWAIT_SECONDS

    def _settle(self, state: State) -> None:
        self.state = state
        self.deadline = None

    def _emit(
        self,
        kind: CmAttribute,
        fields: Mapping[str, Value],
        state: State,
        *,
        repeat: bool = False,
        keep_deadline: bool = False,
    ) -> None:
        """Send one message and enter `state`; `repeat` starts the retransmission timer."""
        numbers: dict[str, Value] = {"local_comm_id": self.local_id}
        if kind is not CmAttribute.REQ:
            numbers["remote_comm_id"] = self.remote_id
        mad = encode(kind, self._tid, {**fields, **numbers})
        if repeat:
            self._waiting, self._retries = mad, 0
            self.deadline = self._clock() + RESEND_SECONDS
        elif not keep_deadline and kind is not CmAttribute.MRA:
            self.deadline = None
        if kind is not CmAttribute.MRA:
            self._last = mad
        self.state = state
        self._send(mad, self.peer)

    def _expect(self, states: State | tuple[State, ...], verb: str) -> None:
        allowed = states if isinstance(states, tuple) else (states,)
        if self.state not in allowed:
            raise OSError(errno.EINVAL, f"{verb} in state {self.state.name} of the connection")
