"""What the memory of one machine is for, as its NTRDMA port and its commands have told the peer."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from bluebridge.device.layout.ntrdma.port import PEER_INFO

MOST_AREAS = 1 << 15
MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 18
"""A guest may write anything into commands: what one machine has beyond these is not named."""
_NEAR = 32
"""Segments that begin before an address, of which one may contain it: regions may overlap."""

Segment = tuple[int, int]
"""Bus address and length."""


class Use(Enum):
    """What is stored to a place; the values are the words of the views."""

    BLOCK = "block"
    BELL = "bell"
    COMMANDS = "command"
    COMMAND_INDEX = "commands produced"
    RESPONSES = "response"
    RESPONSE_INDEX = "commands consumed"
    SENDS = "send"
    SEND_INDEX = "sends produced"
    RECEIVES = "receive"
    RECEIVE_INDEX = "receives produced"
    COMPLETIONS = "completion"
    CONSUMED = "sends consumed"
    BUFFERS = "Ethernet buffer"
    BUFFER_INDEX = "Ethernet buffers produced"
    FRAMES = "Ethernet completion"
    FRAME_INDEX = "Ethernet buffers consumed"
    DATA = "data"
    MESSAGE = "interrupt"
    OTHER = "other"


INDEX_OF = {
    Use.COMMAND_INDEX: Use.COMMANDS,
    Use.RESPONSE_INDEX: Use.RESPONSES,
    Use.SEND_INDEX: Use.SENDS,
    Use.RECEIVE_INDEX: Use.RECEIVES,
    Use.CONSUMED: Use.COMPLETIONS,
    Use.BUFFER_INDEX: Use.BUFFERS,
    Use.FRAME_INDEX: Use.FRAMES,
}
"""Indices, and the rings they are of."""


class Queue:
    """Queue pair `key` of machine `owner`; capacities and pieces as its QP_CREATE says."""

    def __init__(
        self, owner: str, key: int, sends: Sequence[int], receives: Sequence[int], bell: int
    ) -> None:
        self.owner, self.key = owner, key
        self.sends, self.send_pieces = sends
        self.receives, self.recv_pieces = receives
        self.bell = bell
        """The bell of its completions."""
        self.peer_key = 0
        """The number of the peer's queue pair, once it is connected."""
        self.sent = 0
        """Requests so far."""
        self.receive_events: dict[int, int] = {}
        """The event that told of each receive, by its place in the ring."""

    def __str__(self) -> str:
        return f"QP {self.key:#x} of {self.owner}"


@dataclass(slots=True, eq=False)
class Area:
    """Bytes with one use: a ring of `capacity` entries of `entry` bytes, a word, the bells.

    Of an index, `ring` is its ring's capacity and `last` the value that was stored last.
    """

    start: int
    entry: int
    capacity: int
    use: Use
    queue: Queue | None = None
    ring: int = 0
    last: int = 0

    @property
    def end(self) -> int:
        """Behind the last byte."""
        return self.start + self.entry * self.capacity

    def advance(self, value: int) -> int | None:
        """How many entries an index tells of that is stored now; None when it cannot be."""
        if value >= 2 * self.ring:
            return None
        count = (value - self.last) % (2 * self.ring)
        return None if count > self.ring else count


@dataclass(slots=True, eq=False)
class Region:
    """A memory region: `address` is what those say that use its key."""

    owner: str
    domain: int
    key: int
    address: int
    length: int
    segments: list[Segment] = field(default_factory=list)


class Memory:
    """One machine's. `block` is where its block is, `info` what the peer wrote there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.speaks = False
        """Whether it has said that it speaks a version of NTRDMA."""
        self.block = 0
        self.info = bytearray(PEER_INFO.size)
        self.message: Segment | None = None
        """Address and data of its interrupt message."""
        self.bells: dict[int, str] = {}
        """What rings each bell."""
        self.bells_at = 0
        self.commands: dict[int, bytes] = {}
        """The commands in its ring, by their place."""
        self.queues: dict[int, Queue] = {}
        """Its own queue pairs."""
        self._starts: list[int] = []
        self._areas: dict[int, Area] = {}
        self._regions: dict[tuple[int, int], Region] = {}
        self._segments: list[tuple[int, int, int, int, int]] = []
        """Start, end, offset in the region, and the region's domain and key; by their start."""

    def restart(self) -> None:
        """The machine's port begins anew: only its block stays."""
        block = self._areas.get(self.block)
        self._starts.clear()
        self._areas.clear()
        if block is not None:
            self.claim(block)
        for known in (self.bells, self.commands, self.queues, self._regions, self._segments):
            known.clear()

    # -- areas ----------------------------------------------------------------------------------

    def claim(self, area: Area) -> None:
        """From now on these bytes have this use, and none that they had before."""
        if area.start <= 0 or area.end <= area.start or len(self._areas) >= MOST_AREAS:
            return
        place = bisect_right(self._starts, area.start)
        if place and self._areas[self._starts[place - 1]].end > area.start:
            place -= 1
        end = place
        while end < len(self._starts) and self._starts[end] < area.end:
            del self._areas[self._starts[end]]
            end += 1
        self._starts[place:end] = [area.start]
        self._areas[area.start] = area

    def release(self, queue: Queue) -> None:
        """A queue pair is gone: so are its rings here."""
        gone = [start for start, area in self._areas.items() if area.queue is queue]
        for start in gone:
            del self._areas[start]
        if gone:
            self._starts = sorted(self._areas)

    def area(self, address: int) -> Area | None:
        """What the byte at an address is used for."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        area = self._areas[self._starts[place]]
        return area if address < area.end else None

    # -- regions --------------------------------------------------------------------------------

    def register(self, region: Region) -> None:
        """A memory region, with the segments that are told of it so far."""
        self.deregister(region.domain, region.key)
        if len(self._regions) < MOST_REGIONS:
            self._regions[region.domain, region.key] = region
            segments, region.segments = region.segments, []
            self.append(region.domain, region.key, segments)

    def append(self, domain: int, key: int, segments: Sequence[Segment]) -> None:
        """More segments of a region."""
        region = self._regions.get((domain, key))
        if region is None or len(self._segments) + len(segments) > MOST_SEGMENTS:
            return
        offset = sum(length for _, length in region.segments)
        for start, length in segments:
            region.segments.append((start, length))
            insort(self._segments, (start, start + length, offset, domain, key))
            offset += length

    def deregister(self, domain: int, key: int) -> None:
        """A region is gone."""
        region = self._regions.pop((domain, key), None)
        if region is None:
            return
        offset = 0
        for start, length in region.segments:
            item = start, start + length, offset, domain, key
            place = bisect_right(self._segments, item) - 1
            if place >= 0 and self._segments[place] == item:
                del self._segments[place]
            offset += length

    def region(self, address: int) -> tuple[Region, int] | None:
        """The region that an address is in, and the offset there; of several one that is near."""
        place = bisect_right(self._segments, (address + 1,))
        for start, end, offset, domain, key in reversed(
            self._segments[max(0, place - _NEAR) : place]
        ):
            if start <= address < end:
                return self._regions[domain, key], offset + address - start
        return None

    @property
    def known(self) -> bool:
        """Whether its port has told where anything is."""
        return len(self._areas) > 1
