"""The memory of one side, and the regions and windows through which it is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bluebridge.device.rdma.memory.region import Rights
from tests.oracle.work import Bind, Invalidate, Local, Register, Sge

PAGE = 4096
BY_PEER = "9.4 invalidation"
CHANGES = Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC
Span = tuple[int, int]
"""Guest-physical address, length in bytes."""


class Fault(Exception):
    """An error for a request that is not permitted; the text is a clause, or nothing."""


def permit(condition: object, clause: str = "") -> None:
    """Raise `Fault` unless a condition holds."""
    if not condition:
        raise Fault(clause)


@dataclass(eq=False)
class Place:
    """A region, or a window into `parent` that begins at its address `shown`.

    `fast`: REG_MR fills it, with at most `room` pages.
    """

    key: int
    pd: int
    rights: int = 0
    start: int = 0
    length: int = 0
    pages: Sequence[int] = ()
    valid: bool = True
    fast: bool = False
    room: int = 0
    window: bool = False
    second_type: bool = False
    owner: int = 0
    parent: Place | None = None
    shown: int = 0

    @property
    def may_end(self) -> bool:
        """Return whether it can be invalidated."""
        return self.fast or self.second_type

    def clear(self) -> None:
        """Show nothing any more."""
        self.rights = self.owner = 0
        self.parent = None

    def holds(self, va: int, length: int) -> bool:
        """Return whether all of these addresses are its own."""
        return self.start <= va and va + length <= self.start + self.length

    def spans(self, va: int, length: int) -> list[Span]:
        """Return where addresses that were checked are, page by page."""
        if self.parent is not None:
            return self.parent.spans(va - self.start + self.shown, length)
        spans: list[Span] = []
        while length:
            page = self.pages[va // PAGE - self.start // PAGE]
            part = min(length, PAGE - va % PAGE)
            spans.append((page + va % PAGE, part))
            va, length = va + part, length - part
        return spans


@dataclass
class Memory:
    """Guest memory from `base` on, and the places of one adapter by their index."""

    base: int
    data: bytearray
    places: dict[int, Place] = field(default_factory=dict)

    def read(self, spans: Sequence[Span]) -> bytes:
        """Return what is there."""
        parts = ((address - self.base, length) for address, length in spans)
        return b"".join(self.data[start : start + length] for start, length in parts)

    def write(self, spans: Sequence[Span], data: bytes) -> None:
        """Store into spans."""
        for address, length in spans:
            start = address - self.base
            self.data[start : start + length], data = data[:length], data[length:]

    def is_shown(self, place: Place) -> bool:
        """Return whether a window is bound to a region, which then stays."""
        return any(other.parent is place for other in self.places.values())

    def leave(self, qpn: int) -> None:
        """The queue pair is gone, and with it what its windows showed."""
        for place in self.places.values():
            if place.owner == qpn:
                place.clear()
                place.valid = False

    def _find(self, key: int, pd: int, clause: str = "") -> Place:
        place = self.places.get(key >> 8)
        if place is None or place.pd != pd:
            raise Fault(clause)
        return place

    def resolve(self, sge: Sge, right: int, pd: int, qpn: int) -> list[Span]:
        """Return where bytes are that somebody wants to reach. Raises `Fault`."""
        key, va, length = sge
        if not length:
            return []
        place = self._find(key, pd)
        permit(place.key == key and place.valid and place.owner in (0, qpn))
        permit(not right & ~place.rights and place.holds(va, length))
        return place.spans(va, length)

    def carry_out(self, local: Local, pd: int, qpn: int) -> None:
        """Carry out what stays in the adapter. Raises `Fault`, and nothing has changed then."""
        match local:
            case Register():
                self._register(local, pd)
            case Bind():
                self._bind(local, pd, qpn)
            case Invalidate(key):
                self.invalidate(key, pd, qpn, "10.6.5 invalidation")

    def _register(self, work: Register, pd: int) -> None:
        place = self._find(work.key, pd, "10.6.3 REG_MR")
        needed = (work.start + work.length - 1) // PAGE - work.start // PAGE + 1
        permit(place.fast and not place.valid, "10.6.3 REG_MR")
        permit(work.length and needed <= place.room, "10.6.3 REG_MR")
        permit(not work.rights & CHANGES or work.rights & Rights.LOCAL_WRITE, "10.6.3 rights")
        place.key, place.start, place.length = work.key, work.start, work.length
        place.rights, place.pages, place.valid = work.rights, work.pages, True

    def _bind(self, work: Bind, pd: int, qpn: int) -> None:
        window = self._find(work.key, pd, "10.6.7 binding")
        permit(window.window and window.second_type == work.second_type, "10.6.7 binding")
        if work.second_type:
            permit(not window.valid and work.length, "10.6.7 type 2B")
        if work.length:
            parent = self._find(work.lkey, pd, "10.6.7 binding")
            needed = Rights.BIND_WINDOW | (Rights.LOCAL_WRITE if work.rights & CHANGES else 0)
            permit(not parent.window and parent.valid, "10.6.7 binding")
            permit(parent.key == work.lkey and not needed & ~parent.rights, "10.6.7 binding")
            permit(parent.holds(work.va, work.length), "10.6.7 binding")
            window.start = 0 if work.zero_based else work.va
            window.length, window.shown = work.length, work.va
            window.parent, window.rights = parent, work.rights
        else:
            window.clear()
        window.key, window.valid = work.key, True
        window.owner = qpn if work.second_type else 0

    def invalidate(self, key: int, pd: int, qpn: int, clause: str) -> None:
        """LOCAL_INV and SEND with Invalidate. Raises `Fault` of the clause."""
        place = self._find(key, pd, clause)
        permit(place.key == key and place.may_end and place.owner in (0, qpn), clause)
        permit(not self.is_shown(place), clause)
        permit(place.valid or clause != BY_PEER, clause)  # its owner may end what is free
        place.valid = False
        place.clear()
