"""What the halves of the model's queue pair know of the rest of the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bluebridge.device.layout.mlx4.eqe import EventType
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
)


class ClockView(Protocol):
    """The clock of the world."""

    def later(self, side: str, seconds: float, action: Callable[[], None]) -> int:
        """Call `action` in some seconds; a number to cancel it by."""

    def cancel(self, number: int) -> None: ...

    def loses_answer(self) -> bool:
        """Whether an answer that is sent now gets lost on the way."""


class Responds(Protocol):
    """A responder."""

    def respond(self, request: Request) -> Answer | None:
        """Carry out a request of the peer; None when nothing is said."""


class Connected(Protocol):
    """A queue pair as its peer knows it."""

    @property
    def responder(self) -> Responds: ...


class SideView(Protocol):
    """The HCA and the guest of a queue pair."""

    name: str
    up: bool
    memory: Memory
    protection: Protection
    shared: deque[Receive]
    events: list[tuple[EventType, int]]

    @property
    def world(self) -> ClockView: ...

    @property
    def peer(self) -> SideView: ...

    @property
    def pairs(self) -> Mapping[int, Connected]: ...

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""


class PairView(Protocol):
    """A queue pair as its requester and its responder know it."""

    qpn: int
    peer_qpn: int
    pd: int
    state: State
    reliable: bool
    remote_read: bool
    remote_write: bool
    remote_atomic: bool
    rnr_timer: int
    timeout: int
    retry_count: int
    rnr_retry: int
    read_limit: int
    mtu: int
    longest: int
    drain_event: bool
    receives: deque[Receive]

    @property
    def side(self) -> SideView:
        """Its HCA."""

    def event(self, event: EventType) -> None: ...

    def tell(self, completion: Completion) -> None: ...

    def gather(self, sges: Sequence[Sge]) -> bytes:
        """The bytes a send or write carries; raises `Fault`."""

    def scatter(self, sges: Sequence[Sge], length: int) -> list[Span]:
        """Where the first `length` bytes go; raises `Fault`."""

    def ask(self, request: Request) -> Answer | None: ...

    def fail_sends(self) -> None:
        """A work request of the send queue failed."""

    def enter_error(self, event: EventType | None = None) -> None:
        """ERR: everything is flushed."""
