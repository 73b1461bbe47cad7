"""Shared by an engine and its owner: transport, machine, and the engine's actions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.bus.interface import DmaMemory


class Message(NamedTuple):
    """Storing `data` (4 bytes) at `address` of a machine interrupts it."""

    address: int
    data: int


class Transport(Protocol):
    """A transport of stores into the peer's memory; addresses are of their owner's bus.

    Copies land in their order, all other stores in theirs, and so do signals, but two of different
    kinds keep theirs only across a `fence`. `copy` reads its source when it is carried out, the
    others take their data at once. No call fails for the peer's sake: when the way to it breaks,
    whoever owns the transport tells the engine that the link is down.
    """

    @property
    def message(self) -> Message:
        """The store by which the peer interrupts this side."""

    @property
    def span(self) -> tuple[int, int]:
        """Address and length of the memory of this side that the peer can store into."""

    @property
    def posted(self) -> int:
        """The number of stores that were asked for so far."""

    @property
    def done(self) -> int:
        """The number of stores, in order, that are carried out: their sources may be used anew."""

    def map(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate zeroed memory that the peer can store into; raises `MemoryError`."""

    def reaches(self, address: int, length: int) -> bool:
        """Return True if these bytes of the peer can be stored to at all."""

    def write(self, target: int, data: bytes) -> None:
        """Store bytes into the peer's memory."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy from this side's memory into the peer's."""

    def imm32(self, target: int, value: int) -> None:
        """Store 4 bytes, little-endian, at a multiple of 4."""

    def word(self, target: int, value: int) -> None:
        """Store as `imm32` does, but perhaps ahead of stores that wait."""

    def fence(self) -> None:
        """Make every later store land behind all stores that were made before."""

    def signal(self, message: Message) -> None:
        """Interrupt the peer by a store like others."""

    def flush(self) -> None:
        """Start all stores that were asked for."""

    def abandon(self) -> None:
        """Give up all stores that are not carried out yet; `done` equals `posted` from then on."""

    def store_spad(self, index: int, value: int) -> None:
        """Write a scratchpad of the peer, behind all stores so far."""

    def load_spad(self, index: int) -> int:
        """Read a scratchpad of this side."""

    def open(self) -> None:
        """Let the peer store into this side's memory."""

    def shut(self) -> None:
        """Stop the peer's stores from landing in this side's memory."""


class Host(Protocol):
    """The machine of an engine: what it knows at once, and what it must hear at once."""

    def has_address(self, gid: bytes) -> bool:
        """Return True if the IP address of a GID is this side's."""

    def entered(self, state: PortState) -> None:
        """Note that the port is in another state; a program that dies there must do it now."""


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
