"""The memory of a machine as its NTRDMA port and its commands have described it to the peer."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from bluebridge.device.layout.ntrdma.port import DOORBELLS, PEER_INFO

MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 18
"""Segments of one machine that are known at most, since a guest may write anything."""
_NEAR = 32
"""Segments before an address that are searched for it, since regions may overlap."""

Segment = tuple[int, int]
"""Bus address and length."""

MOST_AREAS = 1 << 15
"""Areas of one machine that are known at most, since a guest may write anything."""


class Use(Enum):
    """The uses of memory that a peer stores to; the values are the words of the views."""

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
    FRAME = "Ethernet frame"
    LENGTHS = "Ethernet completion"
    LENGTH_INDEX = "Ethernet buffers consumed"
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
    Use.LENGTH_INDEX: Use.LENGTHS,
}
"""The use of the ring that an index belongs to, by the use of the index."""
RINGS = frozenset(INDEX_OF.values())


@dataclass(slots=True, eq=False)
class Queue:
    """Queue pair `key` of machine `owner`; capacities and piece counts are from its QP_CREATE."""

    owner: str
    key: int
    sends: int
    send_pieces: int
    receives: int
    recv_pieces: int
    bell: int
    """The bell of its completions."""
    peer_key: int = 0
    """The number of the peer's queue pair, once it is connected."""
    sent: int = 0
    """Number of requests so far."""
    receive_events: dict[int, int] = field(default_factory=dict)
    """Number of the event that told of each receive, by its place in the ring."""

    def __str__(self) -> str:
        return f"QP {self.key:#x} of {self.owner}"


@dataclass(slots=True, eq=False)
class Area:
    """Bytes of memory with one use: a ring of `capacity` entries of `entry` bytes, a word or bells.

    For an index, `ring` is its ring's capacity and `last` the value that was stored last; for a
    ring, `part` is the beginning of an entry that was stored last, at `part_at`.
    """

    start: int
    entry: int
    capacity: int
    use: Use
    queue: Queue | None = None
    ring: int = 0
    last: int = 0
    part: bytes = b""
    part_at: int = 0

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.start + self.entry * self.capacity

    def advance(self, value: int) -> int | None:
        """Return how many new entries an index of `value` tells of; None if impossible."""
        if value >= 2 * self.ring:
            return None
        count = (value - self.last) % (2 * self.ring)
        return None if count > self.ring else count


@dataclass(slots=True, eq=False)
class Region:
    """A memory region; `address` is its start in the addresses that users of its key give."""

    owner: str
    domain: int
    key: int
    address: int
    length: int
    segments: list[Segment] = field(default_factory=list)


class Regions:
    """The memory regions that a machine has announced to its peer."""

    def __init__(self) -> None:
        self._regions: dict[tuple[int, int], Region] = {}
        self._segments: list[tuple[int, int, int, int, int]] = []
        """Start, end, offset in the region, and the region's domain and key; by their start."""

    def clear(self) -> None:
        """Forget all regions."""
        self._regions.clear()
        self._segments.clear()

    def register(self, region: Region) -> None:
        """Add a memory region with its first segments."""
        self.deregister(region.domain, region.key)
        if len(self._regions) < MOST_REGIONS:
            self._regions[region.domain, region.key] = region
            segments, region.segments = region.segments, []
            self.append(region.domain, region.key, segments)

    def append(self, domain: int, key: int, segments: Sequence[Segment]) -> None:
        """Add segments to a region."""
        region = self._regions.get((domain, key))
        if region is None or len(self._segments) + len(segments) > MOST_SEGMENTS:
            return
        offset = sum(length for _, length in region.segments)
        for start, length in segments:
            region.segments.append((start, length))
            insort(self._segments, (start, start + length, offset, domain, key))
            offset += length

    def deregister(self, domain: int, key: int) -> None:
        """Forget a region."""
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

    def find(self, address: int) -> tuple[Region, int] | None:
        """Return a region that an address is in, and the offset there; None without one."""
        place = bisect_right(self._segments, (address + 1,))
        for start, end, offset, domain, key in reversed(
            self._segments[max(0, place - _NEAR) : place]
        ):
            if start <= address < end:
                return self._regions[domain, key], offset + address - start
        return None


class Memory:
    """The memory of a machine, its block at `block`, with `info` that the peer wrote there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.speaks = False
        """Whether the machine has announced a version of NTRDMA."""
        self.block = 0
        self.info = bytearray(PEER_INFO.size)
        self.message: tuple[int, int] | None = None
        """Address and data of the interrupt message of the machine."""
        self.bells: dict[int, str] = {}
        """The ring or command that rings each bell."""
        self.commands: dict[int, bytes] = {}
        """The commands in the ring of the machine, by their place."""
        self.buffers: dict[int, int] = {}
        """Address of the buffer for a frame, by its place in the ring."""
        self.frames: set[int] = set()
        """The addresses in `buffers`."""
        self.queues: dict[int, Queue] = {}
        """The queue pairs of the machine."""
        self.regions = Regions()
        self._starts: list[int] = []
        self._areas: dict[int, Area] = {}

    def restart(self) -> None:
        """Forget everything but the block, because the machine's port begins anew."""
        block = self._areas.get(self.block)
        self._starts.clear()
        self._areas.clear()
        if block is not None:
            self.claim(block)
        for told in (self.bells, self.commands, self.buffers, self.frames, self.queues):
            told.clear()
        self.regions.clear()

    def name_bell(self, number: int, rung: str) -> None:
        """Note which ring or command a bell is for."""
        if number < DOORBELLS:
            self.bells[number] = rung

    def post_buffer(self, slot: int, address: int) -> None:
        """Note a buffer for a frame, which replaces the one at the same place of the ring."""
        self.frames.discard(self.buffers.get(slot, 0))
        self.buffers[slot] = address
        self.frames.add(address)

    def claim(self, area: Area) -> None:
        """Set the use of an area; earlier uses of its bytes end."""
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
        """Forget the rings of a queue pair that is gone."""
        gone = [start for start, area in self._areas.items() if area.queue is queue]
        for start in gone:
            del self._areas[start]
        if gone:
            self._starts = sorted(self._areas)

    def area(self, address: int) -> Area | None:
        """Return the area that an address is in, None where no area was told."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        area = self._areas[self._starts[place]]
        return area if address < area.end else None

    @property
    def known(self) -> bool:
        """Whether the port has told where any area is."""
        return len(self._areas) > 1
