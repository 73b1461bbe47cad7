"""The actions of an engine, which its owner carries out, in order, after each call into it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto


class Event(Enum):
    """The kinds of asynchronous events."""

    PORT_UP = auto()
    PORT_DOWN = auto()
    PAIR_FAILED = auto()


class Operation:
    """Something that a user asked for and that the peer has to carry out.

    `good` is None until it has ended. One whose peer is gone, and with it all to undo, counts as
    carried out.
    """

    def __init__(self, lenient: bool = False) -> None:
        self.good: bool | None = None
        self.lenient = lenient
        """True if it ends well whatever the peer says: one that refuses has nothing to undo."""
        self.left = 1
        """The number of answers of the peer that it still waits for."""
        self.refused = False


@dataclass(frozen=True, slots=True)
class Happened:
    """An asynchronous event; `key` is the number of the queue pair that failed, else 0."""

    event: Event
    key: int


@dataclass(frozen=True, slots=True)
class Notify:
    """The event that a completion queue was armed for; `cqn` is the queue's number."""

    cqn: int


@dataclass(frozen=True, slots=True)
class CmArrived:
    """A CM message of the peer with the GID `sender`, without its first 8 bytes.

    The GID is 0 for an IPv6 address that the peer has not told: it is one that it was asked for.
    """

    mad: bytes
    sender: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """An operation has ended; `operation.good` says how."""

    operation: Operation


Action = Happened | Notify | CmArrived | Ended
Actions = deque[Action]
