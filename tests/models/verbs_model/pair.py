"""The model's queue pair: its states, and what software asks of it."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.verbs_model.requester import Posted, Requester
from tests.models.verbs_model.responder import Responder
from tests.models.verbs_model.values import Completion, Receive, Sge, State, Work
from tests.models.verbs_model.world import ENTRIES, Side

INDEX_MASK = 0xFFFF


class PairModel(Requester, Responder):
    """One queue pair of a side."""

    def __init__(self, side: Side, slot: int) -> None:
        super().__init__(side, slot)
        self._last_told = False
        self.sent = self.received = 0

    # -- software -------------------------------------------------------------------------------

    @property
    def send_room(self) -> int:
        """Work requests that the send queue still takes."""
        return ENTRIES - 1 - len(self.ring) - len(self.pending)

    @property
    def receive_room(self) -> int:
        """Receives that the queue still takes."""
        return ENTRIES - 1 - len(self.receives)

    def post_send(self, work: Work) -> None:
        self.ring.append(Posted(self.sent & INDEX_MASK, work))
        self.sent += 1
        self.run()

    def post_receive(self, sges: Sequence[Sge]) -> None:
        """A receive; in ERR it is flushed at once."""
        receive = Receive(self.received & INDEX_MASK, sges)
        self.received += 1
        self.receives.append(receive)
        if self.state is State.ERR:
            self._flush_receives()

    # -- states ---------------------------------------------------------------------------------

    def move(self, state: State) -> None:
        """What a command that succeeds does."""
        self.state = state
        if state is State.SQD:
            self.drain_event = False
        if state is State.RTS:
            self.run()

    def drain(self, *, event: bool) -> None:
        """SQD; `event` asks for one once nothing is outstanding."""
        self.move(State.SQD)
        self.drain_event = event and bool(self.pending)
        if event and not self.pending:
            self.event(EventType.SQ_DRAINED)

    def fail_sends(self) -> None:
        if self.reliable:
            self.enter_error()
        else:
            self.state = State.SQER
            self.abort()

    def enter_error(self, event: EventType | None = None) -> None:
        if self.state is State.ERR:
            return
        self.state = State.ERR
        if event is not None:
            self.event(event)
        self.abort()
        if not self.shared:
            self._flush_receives()
        elif not self._last_told:
            self._last_told = True
            self.event(EventType.SRQ_QP_LAST_WQE)

    def _flush_receives(self) -> None:
        while self.receives and not self.shared:
            flushed = self.receives.popleft()
            self.tell(Completion(False, flushed.index, CompletionStatus.WR_FLUSH_ERR))
