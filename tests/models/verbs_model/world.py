"""The model's world: two sides with their queue pairs, a cable between them, and a clock."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.requester import Posted, RequesterModel
from tests.models.verbs_model.responder import ResponderModel
from tests.models.verbs_model.values import (
    Answer,
    Completion,
    Memory,
    Protection,
    Receive,
    Request,
    Sge,
    Span,
    State,
    Work,
)
from tests.models.verbs_model.views import SideView

PD = 1
ENTRIES = 16
"""Of each queue."""
INDEX_MASK = 0xFFFF


class PairModel:
    """One queue pair; slot 0 has a receive queue, slot 1 the side's shared one, slot 2 is UC."""

    def __init__(self, side: SideView, slot: int) -> None:
        self.side = side
        self.slot = slot
        self.reliable, self.shared = slot != 2, slot == 1
        self.qpn, self.peer_qpn = side.qpn(slot), side.peer.qpn(slot)
        self.pd = PD
        self.state = State.INIT
        self.remote_read = self.remote_write = self.remote_atomic = False
        self.rnr_timer = self.timeout = self.retry_count = self.rnr_retry = 0
        self.read_limit, self.mtu, self.longest = 1, 1024, 1 << 30
        self.drain_event = self._last_told = False
        self.sent = self.received = 0
        self.receives: deque[Receive] = side.shared if self.shared else deque()
        self.requester = RequesterModel(self)
        self.responder = ResponderModel(self)
        self.completions: list[Completion] = []

    def event(self, event: EventType) -> None:
        self.side.events.append((event, self.qpn))

    def tell(self, completion: Completion) -> None:
        self.completions.append(completion)

    # -- memory ---------------------------------------------------------------------------------

    def gather(self, sges: Sequence[Sge]) -> bytes:
        """The bytes a send or write carries; raises `Fault`."""
        resolve = self.side.protection.resolve
        spans = [
            span for sge in sges for span in resolve(sge, Rights.LOCAL_READ, self.pd, self.qpn)
        ]
        return self.side.memory.read(spans)

    def scatter(self, sges: Sequence[Sge], length: int) -> list[Span]:
        """Where the first `length` bytes go; raises `Fault`."""
        spans: list[Span] = []
        for key, va, size in sges:
            size = min(size, length)
            length -= size
            sge = (key, va, size)
            spans += self.side.protection.resolve(sge, Rights.LOCAL_WRITE, self.pd, self.qpn)
        self.side.memory.check(spans)
        return spans

    # -- messages -------------------------------------------------------------------------------

    def ask(self, request: Request) -> Answer | None:
        peer = self.side.peer.pairs.get(self.slot)
        if peer is None or not (self.side.up and self.side.peer.up):
            return None
        answer = peer.responder.respond(request)
        return None if answer is None or self.side.world.loses_answer() else answer

    # -- software -------------------------------------------------------------------------------

    @property
    def send_room(self) -> int:
        """Work requests that the send queue still takes."""
        return ENTRIES - 1 - len(self.requester.ring) - len(self.requester.pending)

    @property
    def receive_room(self) -> int:
        """Receives that the queue still takes."""
        return ENTRIES - 1 - len(self.receives)

    def post_send(self, work: Work) -> None:
        self.requester.ring.append(Posted(self.sent & INDEX_MASK, work))
        self.sent += 1
        self.requester.run()

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
            self.requester.run()

    def drain(self, *, event: bool) -> None:
        """SQD; `event` asks for one once nothing is outstanding."""
        self.move(State.SQD)
        self.drain_event = event and bool(self.requester.pending)
        if event and not self.requester.pending:
            self.event(EventType.SQ_DRAINED)

    def fail_sends(self) -> None:
        """A work request of the send queue failed: all fails, of UC only that queue (10.3.1)."""
        if self.reliable:
            self.enter_error()
        else:
            self.state = State.SQER
            self.requester.abort()

    def enter_error(self, event: EventType | None = None) -> None:
        """ERR: everything is flushed."""
        if self.state is State.ERR:
            return
        self.state = State.ERR
        if event is not None:
            self.event(event)
        self.requester.abort()
        if not self.shared:
            self._flush_receives()
        elif not self._last_told:
            self._last_told = True
            self.event(EventType.SRQ_QP_LAST_WQE)

    def _flush_receives(self) -> None:
        while self.receives and not self.shared:
            flushed = self.receives.popleft()
            self.tell(Completion(False, flushed.index, CompletionStatus.WR_FLUSH_ERR))


class Side:
    """One guest with its HCA. `alive`: a driver runs; `up`: its port's link is."""

    peer: Side

    def __init__(self, world: World, name: str, base: int) -> None:
        self.world = world
        self.name = name
        self._base = base
        self.memory = Memory()
        self.start()

    def start(self) -> None:
        """As after power-on, with the driver loaded; memory stays."""
        self.alive = self.up = True
        self.protection = Protection()
        self.pairs: dict[int, PairModel] = {}
        self.shared: deque[Receive] = deque()
        self.shared_posted = 0
        self.events: list[tuple[EventType, int]] = []

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""
        return self._base + slot

    def open(self, slot: int) -> PairModel:
        """RST2INIT."""
        self.pairs[slot] = PairModel(self, slot)
        return self.pairs[slot]

    def close(self, slot: int) -> None:
        """2RST: no trace, and no completion of what was posted."""
        pair = self.pairs.pop(slot, None)
        if pair is not None:
            pair.requester.forget()
            self.protection.leave(pair.qpn)

    def die(self) -> None:
        """The guest is gone: of its HCA nothing is left."""
        for slot in list(self.pairs):
            self.close(slot)
        self.start()
        self.alive = self.up = False

    def post_shared(self, sges: Sequence[Sge]) -> None:
        """A receive in the shared queue; its number is the entry's place."""
        self.shared.append(Receive(self.shared_posted % ENTRIES, sges))
        self.shared_posted += 1


class World:
    """Both sides; `now` in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._number = 0
        self._calls: list[tuple[float, str, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self.answers_to_lose = 0
        self.a, self.b = Side(self, "a", 0x800240), Side(self, "b", 0x250)
        self.a.peer, self.b.peer = self.b, self.a
        self.sides = (self.a, self.b)

    def later(self, side: str, seconds: float, action: Callable[[], None]) -> int:
        """Call `action` in some seconds; a number to cancel it by."""
        self._number += 1
        heapq.heappush(self._calls, (self.now + seconds, side, self._number, action))
        return self._number

    def loses_answer(self) -> bool:
        """Whether an answer that is sent now gets lost on the way."""
        lost = self.answers_to_lose > 0
        self.answers_to_lose -= lost
        return lost

    def cancel(self, number: int) -> None:
        self._cancelled.add(number)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, number, action = heapq.heappop(self._calls)
            self.now = due
            if number not in self._cancelled:
                action()
        self.now = end
