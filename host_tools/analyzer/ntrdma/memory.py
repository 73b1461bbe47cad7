"""The memory of a machine, as its NTRDMA port and its commands have told the peer."""

from __future__ import annotations

from bisect import bisect_right

from bluebridge.device.layout.ntrdma.port import DOORBELLS, PEER_INFO
from bluebridge.host_tools.analyzer.ntrdma.areas import Area, Queue
from bluebridge.host_tools.analyzer.ntrdma.regions import Regions

MOST_AREAS = 1 << 15
"""A guest may write anything into commands: what one machine has beyond these is not named."""


class Memory:
    """The memory of a machine: `block` is where its block is, `info` what the peer wrote there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.speaks = False
        """Whether it has said that it speaks a version of NTRDMA."""
        self.block = 0
        self.info = bytearray(PEER_INFO.size)
        self.message: tuple[int, int] | None = None
        """Address and data of its interrupt message."""
        self.bells: dict[int, str] = {}
        """What rings each bell."""
        self.commands: dict[int, bytes] = {}
        """The commands in its ring, by their place."""
        self.buffers: dict[int, int] = {}
        """By its place in the ring: where a buffer for a frame begins."""
        self.frames: set[int] = set()
        """The same addresses."""
        self.queues: dict[int, Queue] = {}
        """Its own queue pairs."""
        self.regions = Regions()
        self._starts: list[int] = []
        self._areas: dict[int, Area] = {}

    def restart(self) -> None:
        """Forget everything but the block: the machine's port begins anew."""
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
        """A buffer for a frame, instead of the one at the same place before."""
        self.frames.discard(self.buffers.get(slot, 0))
        self.buffers[slot] = address
        self.frames.add(address)

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
        """Find the area that an address is in, None where nothing was told."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        area = self._areas[self._starts[place]]
        return area if address < area.end else None

    @property
    def known(self) -> bool:
        """Whether its port has told where anything is."""
        return len(self._areas) > 1
