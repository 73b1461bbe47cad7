"""What is asked of a queue pair and what it tells, and the memory and keys behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.memory.region import Rights

Sge = tuple[int, int, int]
"""Key, virtual address, length in bytes."""

RETURNING = frozenset(
    (
        SendOpcode.RDMA_READ,
        SendOpcode.ATOMIC_CS,
        SendOpcode.ATOMIC_FA,
        SendOpcode.MASKED_ATOMIC_CS,
        SendOpcode.MASKED_ATOMIC_FA,
    )
)
"""Requests whose answer brings data."""
ATOMICS = RETURNING - {SendOpcode.RDMA_READ}
SENDS = frozenset((SendOpcode.SEND, SendOpcode.SEND_IMM, SendOpcode.SEND_INVAL))
WRITES = frozenset((SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM))
UNRELIABLE = frozenset((SendOpcode.SEND, SendOpcode.SEND_IMM)) | WRITES
"""What UC carries."""


class State(Enum):
    """States of a queue pair that hardware owns (InfiniBand vol. 1, 10.3.1)."""

    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    SQD = "SQD"
    SQER = "SQER"
    ERR = "ERR"


@dataclass(frozen=True)
class Register:
    """REG_MR: `pages` become visible at `start` under `key`."""

    key: int
    start: int
    length: int
    rights: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    """BIND_MW of window `key` to `length` bytes at `va` of the region `lkey`."""

    key: int
    lkey: int
    va: int
    length: int
    rights: int
    zero_based: bool
    second_type: bool


@dataclass(frozen=True)
class Invalidate:
    """LOCAL_INV."""

    key: int


@dataclass(frozen=True)
class Work:
    """A send work request; `inline` stands for `sges` where it is not None."""

    opcode: SendOpcode
    sges: tuple[Sge, ...] = ()
    inline: bytes | None = None
    remote: int = 0
    rkey: int = 0
    immediate: int = 0
    operands: tuple[int, int, int, int] = (0, 0, 0, 0)
    action: Register | Bind | Invalidate | None = None
    signalled: bool = True
    fence: bool = False
    solicited: bool = False

    @property
    def length(self) -> int:
        return sum(sge[2] for sge in self.sges) if self.inline is None else len(self.inline)


@dataclass(frozen=True)
class Completion:
    """A completion; of one in error only index and status say something."""

    send: bool
    index: int
    status: int
    opcode: int = 0
    length: int = 0
    immediate: int = 0
    source: int = 0


@dataclass(frozen=True)
class Request:
    """A message: a work request with what was gathered for it."""

    work: Work
    psn: int
    packets: int
    payload: bytes


@dataclass(frozen=True)
class Answer:
    """ACK or NAK; `data` of a read or an atomic."""

    psn: int
    syndrome: int
    data: bytes = b""


@dataclass
class Receive:
    """A receive that was posted."""

    index: int
    sges: Sequence[Sge]


PAGE = 4096
CHANGES = Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC
Span = tuple[int, int]
"""Guest-physical address, length in bytes."""


class Fault(Exception):
    """What was asked for is not permitted, or is no memory."""


class Memory:
    """Blocks of guest memory that come and go, by their address."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytearray] = {}

    def _piece(self, span: Span) -> memoryview:
        address, length = span
        for base, block in self.blocks.items():
            if base <= address and address + length <= base + len(block):
                return memoryview(block)[address - base : address - base + length]
        raise Fault(f"no memory at {address:#x}")

    def check(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._piece(span)

    def read(self, spans: Sequence[Span]) -> bytes:
        return b"".join(self._piece(span) for span in spans)

    def write(self, spans: Sequence[Span], data: bytes) -> None:
        """Store into all spans, or into none."""
        pieces = [self._piece(span) for span in spans]
        for piece in pieces:
            piece[:] = data[: len(piece)]
            data = data[len(piece) :]


@dataclass
class Place:
    """A region, or a window into `parent` that begins at its address `shown`."""

    key: int
    pd: int
    rights: int = 0
    start: int = 0
    length: int = 0
    pages: list[int] = field(default_factory=list)
    valid: bool = True
    fast: bool = False
    room: int = 0
    window: bool = False
    second_type: bool = False
    owner: int = 0
    parent: Place | None = None
    shown: int = 0

    def clear(self) -> None:
        """Show nothing any more."""
        self.rights = self.owner = 0
        self.parent = None

    def spans(self, va: int, length: int) -> list[Span]:
        """Where addresses that were checked are, page by page."""
        if self.parent is not None:
            return self.parent.spans(va - self.start + self.shown, length)
        spans: list[Span] = []
        while length:
            page = self.pages[va // PAGE - self.start // PAGE]
            part = min(length, PAGE - va % PAGE)
            spans.append((page + va % PAGE, part))
            va, length = va + part, length - part
        return spans

    def holds(self, va: int, length: int) -> bool:
        return self.start <= va and va + length <= self.start + self.length


class Protection:
    """Regions and windows of one HCA, by their index."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}

    def add(self, place: Place) -> Place:
        self.places[place.key >> 8] = place
        return place

    def windows(self, place: Place) -> int:
        """How many windows are bound to a region."""
        return sum(other.parent is place for other in self.places.values())

    def remove(self, place: Place) -> bool:
        """Destroy; not while windows are bound."""
        if self.windows(place):
            return False
        place.clear()
        del self.places[place.key >> 8]
        return True

    def leave(self, qpn: int) -> None:
        """The queue pair is gone, and with it what its windows showed."""
        for place in self.places.values():
            if place.owner == qpn:
                place.clear()
                place.valid = False

    def _find(self, key: int, pd: int) -> Place:
        place = self.places.get(key >> 8)
        if place is None or place.pd != pd:
            raise Fault("no such key")
        return place

    def resolve(self, sge: Sge, right: int, pd: int, qpn: int) -> list[Span]:
        """Where bytes are that somebody wants to reach."""
        key, va, length = sge
        if not length:
            return []
        place = self._find(key, pd)
        if place.key != key or not place.valid or place.owner not in (0, qpn):
            raise Fault("a key that is not valid")
        if right & ~place.rights or not place.holds(va, length):
            raise Fault("not permitted")
        return place.spans(va, length)

    def register(self, work: Register, pd: int) -> None:
        """REG_MR (10.6.3.3): a free region gets pages and a new key byte."""
        place = self._find(work.key, pd)
        needed = (work.start + work.length - 1) // PAGE - work.start // PAGE + 1
        if not place.fast or place.valid or not work.length or needed > place.room:
            raise Fault("cannot be registered")
        if work.rights & CHANGES and not work.rights & Rights.LOCAL_WRITE:
            raise Fault("remote changes need local ones")
        place.key, place.start, place.length = work.key, work.start, work.length
        place.rights, place.pages, place.valid = work.rights, list(work.pages), True

    def bind(self, work: Bind, pd: int, qpn: int) -> None:
        """BIND_MW (10.6.7.2); a window of type 2 belongs to the queue pair afterwards."""
        window = self._find(work.key, pd)
        if not window.window or window.second_type != work.second_type:
            raise Fault("no such window")
        if work.second_type and (window.valid or not work.length):
            raise Fault("a window that is bound, or is to show nothing")
        parent = self._parent(work, pd) if work.length else None
        window.clear()
        if parent is not None:
            window.start = 0 if work.zero_based else work.va
            window.length, window.shown = work.length, work.va
            window.parent, window.rights = parent, work.rights
        window.key, window.valid = work.key, True
        window.owner = qpn if work.second_type else 0

    def _parent(self, work: Bind, pd: int) -> Place:
        parent = self._find(work.lkey, pd)
        needed = Rights.BIND_WINDOW | (Rights.LOCAL_WRITE if work.rights & CHANGES else 0)
        if parent.window or not parent.valid or parent.key != work.lkey:
            raise Fault("no region")
        if needed & ~parent.rights or not parent.holds(work.va, work.length):
            raise Fault("not permitted")
        return parent

    def invalidate(self, key: int, pd: int, qpn: int, *, remote: bool) -> None:
        """LOCAL_INV and SEND_WITH_INV (10.6.5)."""
        place = self._find(key, pd)
        if place.key != key or not (place.fast or place.second_type):
            raise Fault("may not be invalidated")
        if place.owner not in (0, qpn) or (remote and not place.valid) or self.windows(place):
            raise Fault("not now")
        place.valid = False
        place.clear()
