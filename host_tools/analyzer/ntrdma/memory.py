"""The memory of a machine as its NTRDMA port and its commands have described it to the peer."""

from __future__ import annotations

from bisect import bisect_right

from bluebridge.device.layout.ntrdma.port import DOORBELLS, PEER_INFO
from bluebridge.host_tools.analyzer.ntrdma.areas import Area, Queue
from bluebridge.host_tools.analyzer.ntrdma.regions import Regions

MOST_AREAS = 1 << 15
"""Areas of one machine that are known at most, since a guest may write anything."""


class Memory:
    """The memory of a machine.

    `block` is the address of its block, `info` what the peer wrote there.
    """

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

    # -- areas ----------------------------------------------------------------------------------

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
