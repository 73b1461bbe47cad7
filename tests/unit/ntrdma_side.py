"""One side of the world of NTRDMA's tests: an engine, and an application on top of it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.ntrdma.engine.engine import Engine
from bluebridge.guest.ntrdma.engine.fast_regions import FastRegion
from bluebridge.guest.ntrdma.engine.local import Event
from bluebridge.guest.ntrdma.engine.queue_pair import QueuePair, Sizes
from bluebridge.guest.ntrdma.engine.regions import INVALIDATABLE, Region
from bluebridge.guest.verbs.enums import AccessFlags
from tests.unit.ntrdma_frames import Frames
from tests.unit.ntrdma_wire import Machine, ModelTransport

ALL = int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ)
SLOT = 192
SLOTS = 24
"""Pieces of memory of each queue pair, each used by one operation at a time."""
GUARD = 64
IOVA = 0x7000_0000
KEY = 0x4400


@dataclass
class End:
    """One end of a connection: its queue pair, and what it waits for."""

    index: int
    pair: QueuePair
    fresh: bool = False
    connected: bool = False
    busy: bool = False
    """Whether a change of its state is under way."""
    free: list[int] = field(default_factory=list)
    """Slots that nothing uses."""
    receives: deque[tuple[int, int]] = field(default_factory=deque)
    """Number and slot of posted receives."""
    fast: FastRegion | None = None


class Side:
    """One life of an engine on a machine."""

    def __init__(self, machine: Machine, peer: Machine, pairs: int, chance: random.Random) -> None:
        self.machine, self.chance = machine, chance
        self.transport = ModelTransport(machine, peer)
        self.events: list[Event] = []
        self.states: list[PortState] = []
        self.frames = Frames(chance)
        self.engine = Engine(self.transport, self, self.frames)
        self.link_events: deque[bool] = deque()
        self.cm: list[bytes] = []
        span = GUARD + pairs * SLOTS * SLOT + GUARD
        self.area = self.transport.map(span)
        self.area.view[:] = b"\xee" * span
        local = self.engine.local
        self.domain = local.create_domain()
        self.bell_events = 0
        self.queues = [self.engine.create_queue(self._notified) for _ in range(2)]
        region = Region(KEY, ALL, IOVA, span - 2 * GUARD, 3)
        third = (span - 2 * GUARD) // 3
        start = self.area.address + GUARD
        region.append([(start, third), (start + third, third)])
        region.append([(start + 2 * third, span - 2 * GUARD - 2 * third)])
        local.register(self.domain, region)
        self.ends = [self._end(index) for index in range(pairs)]

    def _end(self, index: int) -> End:
        sizes = Sizes(8, 8, 3, 2, 16)
        queues = self.queues[index % 2], self.queues[(index + 1) % 2]
        end = End(index, self.engine.create_pair(self.domain, sizes, queues, lambda good: None))
        end.fresh = True
        end.free = self.slots_of(index)
        end.fast = FastRegion(self.domain, 0x90 + index, 4)
        self.engine.local.add_fast_region(end.fast)
        return end

    def slots_of(self, index: int) -> list[int]:
        """The slots of a queue pair."""
        return list(range(index * SLOTS, (index + 1) * SLOTS))

    def iova(self, slot: int) -> int:
        """The address of a slot in the region."""
        return IOVA + slot * SLOT

    def view(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        start = GUARD + slot * SLOT
        return self.area.view[start : start + SLOT]

    def guards_hold(self) -> bool:
        """Whether the bytes beside the region are as they were."""
        view = self.area.view
        return bytes(view[:GUARD]) == bytes(view[-GUARD:]) == b"\xee" * GUARD

    def drop_fast(self, end: End) -> None:
        """What a reset leaves of a registration goes."""
        if end.fast is not None and end.fast.registered is not None:
            region = end.fast.invalidate()
            assert region is not None and region.access & INVALIDATABLE
            self.engine.local.deregister(self.domain, region.key)

    def usable(self, end: End) -> bool:
        """Whether requests can be posted that will be carried out."""
        return end.connected and end.pair.state is QueueState.READY_TO_SEND

    def _notified(self) -> None:
        self.bell_events += 1

    # -- the engine's owner ---------------------------------------------------------------------

    def event(self, event: Event, key: int) -> None:
        self.events.append(event)

    def entered(self, state: PortState) -> None:
        self.states.append(state)

    def cm_message(self, mad: bytes, ip: int) -> None:
        self.cm.append(mad)

    def has_address(self, ip: int) -> bool:
        return ip == 0x0A090001
