"""One side of the world of NTRDMA's tests: an engine, and an application on top of it."""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.ntrdma.engine.engine import Engine
from bluebridge.guest.ntrdma.engine.ethernet import Ethernet
from bluebridge.guest.ntrdma.engine.queue_pair import QueuePair, Sizes
from bluebridge.guest.ntrdma.engine.regions import INVALIDATABLE, Domain, FastRegion, Region
from bluebridge.guest.ntrdma.engine.transport import Ended, Event, Happened, Operation
from bluebridge.guest.ntrdma.provider.queue_pair import NtrdmaSrq
from bluebridge.guest.ntrdma.service import Service
from bluebridge.guest.verbs.enums import AccessFlags, WcStatus
from tests.world.ntrdma.wire import Machine, ModelTransport

FRAME_BYTES = 120
FRAME_COUNT = 8
_HEAD = struct.Struct("<IQ2x")
"""The sender's life, the frame's number."""
_SHORTEST, _LONGEST_PART = _HEAD.size, FRAME_BYTES - _HEAD.size


def frame_of(life: int, number: int) -> bytes:
    """The frame of a number: its length and bytes are the same wherever they are asked for."""
    seed = hashlib.sha512(_HEAD.pack(life, number)).digest() * 2
    return _HEAD.pack(life, number) + seed[: seed[0] % (_LONGEST_PART + 1)]


class Frames:
    """`Network` that sends numbered frames, and holds those that come against what they must be."""

    frame_bytes = FRAME_BYTES
    frame_count = FRAME_COUNT

    def __init__(self, chance: random.Random) -> None:
        self.life = chance.getrandbits(32)
        self.sent = self.received = 0
        self.carrier: list[bool] = []
        self._peers: dict[int, int] = {}
        """Each life of the peer's, in order, with the number of the last frame from it."""

    def receive(self, frame: memoryview) -> None:
        """It is whole, newer than all before it, and not of a life that has ended."""
        life, number = _HEAD.unpack_from(frame)
        assert bytes(frame) == frame_of(life, number), f"frame {number} has other bytes"
        if life in self._peers:
            assert life == list(self._peers)[-1], f"frame {number} is of a peer that has died"
            assert number > self._peers[life], f"frame {number} comes twice"
        self._peers[life] = number
        self.received += 1

    def set_carrier(self, up: bool) -> None:
        """It is only noted."""
        self.carrier.append(up)

    def post(self, ethernet: Ethernet | None, most: int) -> int:
        """Send up to so many frames, as the peer has buffers; how many."""
        assert ethernet is not None
        for count in range(most):
            space = ethernet.space()
            if space is None:
                return count
            self.sent += 1
            frame = frame_of(self.life, self.sent)
            space[: len(frame)] = frame
            ethernet.send(len(frame))
        return most


LOCAL, WRITE, READ = (
    int(AccessFlags.LOCAL_WRITE),
    int(AccessFlags.REMOTE_WRITE),
    int(AccessFlags.REMOTE_READ),
)
ALL = LOCAL | WRITE | READ
SLOT = 192
SLOTS = 24
"""Pieces of memory of each queue pair, each used by one operation at a time."""
PAGES = 3
PAGE = SLOT // PAGES
"""A slot as REG_MR sees it: pages in any order."""
GUARD = 64
IOVA = 0x7000_0000
LIST_IOVA = 0x8000_0000
FAST_IOVA = 0x9000_0000
KEY, READ_ONLY, WRITE_ONLY, FIXED, LIST, ALIEN = range(0x4400, 0x4A00, 0x100)
"""Keys: one with all rights, with some, with none (FIXED), of many ranges, of the other domain."""
RIGHTS = {KEY: ALL, READ_ONLY: READ, WRITE_ONLY: LOCAL | WRITE, FIXED: 0}
SHARING = 2
"""Queue pairs from this one on take their receives from a shared queue."""
NO_READS = 3
"""The queue pair that does not let its peer read."""


@dataclass
class Window:
    """A slot that a work request has registered, its pages in `order`."""

    key: int
    slot: int
    order: tuple[int, ...]
    iova: int
    valid: bool = False
    ending: bool = False

    def arranged(self, view: bytes) -> bytes:
        """The bytes of the slot as users of the key see them."""
        return b"".join(view[page * PAGE : page * PAGE + PAGE] for page in self.order)


@dataclass
class End:
    """One end of a connection: its queue pair, and what it waits for."""

    index: int
    pair: QueuePair
    domain: Domain
    fresh: bool = False
    connected: bool = False
    busy: bool = False
    """Whether a change of its state is under way."""
    waits: Operation | None = None
    """The operation that has to end first."""
    free: list[int] = field(default_factory=list)
    """Slots that nothing uses."""
    receives: deque[tuple[int, int]] = field(default_factory=deque)
    """Number and slot of posted receives."""
    fast: FastRegion | None = None
    window: Window | None = None

    @property
    def sharing(self) -> bool:
        """Whether its receives come from the shared queue."""
        return self.index >= SHARING

    @property
    def access(self) -> int:
        """The rights that its peer has."""
        return LOCAL | WRITE if self.index == NO_READS else ALL


class Stopped(Exception):
    """A side has come to the state at which it ends."""


class _Server:
    """The part of a service that a shared receive queue needs."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self.lock = threading.RLock()
        self.engine = engine
        self._clock = clock

    def run(self) -> None:
        """Carry out what was posted."""
        self.engine.run(self._clock())


class Side:
    """One life of an engine on a machine."""

    def __init__(
        self,
        machine: Machine,
        peer: Machine,
        pairs: int,
        chance: random.Random,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.machine, self.chance = machine, chance
        self.transport = ModelTransport(machine, peer)
        self.states: list[PortState] = []
        self.stops_at: PortState | None = None
        """The state in which the side ends."""
        self.stops_at_once = True
        """Whether it ends in the middle of whatever it does."""
        self.came = False
        """Whether it has come to that state."""
        self.told_up = False
        self.frames = Frames(chance)
        self.engine = Engine(self.transport, self, self.frames)
        self.link_events: deque[bool] = deque()
        self.span = (pairs + 1) * SLOTS * SLOT
        self.area = self.transport.map(self.span + 2 * GUARD)
        self.area.view[:] = b"\xee" * (self.span + 2 * GUARD)
        resources = self.engine.own.resources
        self.domain = resources.create_domain().domain
        self.domains = self.domain, resources.create_domain().domain
        self.queues = [self.engine.own.create_queue() for _ in range(3)]
        for domain in self.domains:
            for key, access in RIGHTS.items():
                resources.register(domain, self._region(key, access))
        resources.register(self.domains[0], self._region(ALIEN, ALL))
        self.listed: bool | None = False
        """Whether the region of many ranges is registered; None while that changes."""
        self.listing: Operation | None = None
        """The operation that changes it."""
        self.positions = chance.sample(range((pairs + 1) * SLOTS), (pairs + 1) * SLOTS)
        """Where in that region a slot is."""
        service = cast(Service, _Server(self.engine, clock))
        self.shared = NtrdmaSrq(service, 1, SLOTS, 3)
        self.shared_slots: dict[int, int] = {}
        """Of receives in the shared queue, by number."""
        self.pool = self.slots_of(pairs)
        """Slots for them."""
        self.ends = [self._end(index) for index in range(pairs)]

    def _region(self, key: int, access: int) -> Region:
        """All slots, in three pieces of memory."""
        region = Region(key, access, IOVA, self.span, 3)
        third = self.span // 3
        start = self.area.address + GUARD
        region.append([(start, third), (start + third, third)])
        region.append([(start + 2 * third, self.span - 2 * third)])
        return region

    def many_ranges(self) -> Region:
        """All slots, each at another place than in the other regions."""
        slots = {position: slot for slot, position in enumerate(self.positions)}
        region = Region(LIST, ALL, LIST_IOVA, self.span, len(slots))
        region.append([(self.bus(slots[number]), SLOT) for number in range(len(slots))])
        return region

    def _end(self, index: int) -> End:
        sizes = Sizes(8, SLOTS if index >= SHARING else 8, 3, 3, 16)
        queues = self.queues[index % 3], self.queues[(index + 1) % 3]
        domain = self.domains[index % 2]
        pair = self.engine.own.create_pair(domain, sizes, queues).pair
        end = End(index, pair, domain, fresh=True, free=self.slots_of(index))
        end.fast = FastRegion(domain, 0x90 + index, 4)
        self.engine.own.resources.add_fast_region(end.fast)
        if end.sharing:
            self.shared.attach(pair)
        return end

    def slots_of(self, index: int) -> list[int]:
        """The slots of a queue pair; those behind the last one's are for the shared queue."""
        return list(range(index * SLOTS, (index + 1) * SLOTS))

    def iova(self, slot: int) -> int:
        """The address of a slot in the region."""
        return IOVA + slot * SLOT

    def bus(self, slot: int) -> int:
        """The address of a slot on the bus."""
        return self.area.address + GUARD + slot * SLOT

    def view(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        start = GUARD + slot * SLOT
        return self.area.view[start : start + SLOT]

    def guards_hold(self) -> bool:
        """Whether the bytes beside the region are as they were."""
        view = self.area.view
        return bytes(view[:GUARD]) == bytes(view[-GUARD:]) == b"\xee" * GUARD

    def drop_fast(self, end: End) -> None:
        """End the registration that a reset has left."""
        end.window = None
        if end.fast is not None and end.fast.registered is not None:
            region = end.fast.invalidate()
            assert region is not None and region.access & INVALIDATABLE
            self.engine.own.resources.deregister(end.domain, region.key)

    def land(self) -> None:
        """Everything that this side has stored lands."""
        while self.transport.in_flight:
            self.transport.deliver(self.chance)

    def hear_links(self, now: float) -> None:
        """The engine is told what has become of the link."""
        while self.link_events:
            self.engine.link(self.link_events.popleft(), now)

    def statuses(self) -> list[WcStatus]:
        """How what has completed has ended."""
        return [wc.status for queue in self.queues for wc in queue.poll(9)]

    def usable(self, end: End) -> bool:
        """Whether requests can be posted that will be carried out."""
        return end.connected and end.pair.state is QueueState.READY_TO_SEND

    def ended(self) -> list[Operation]:
        """Take the actions of the engine: the operations that have ended.

        It has told that the peer is there, and that it is lost, whenever that was so.
        """
        actions = list(self.engine.actions)
        self.engine.actions.clear()
        for each in actions:
            if isinstance(each, Happened) and each.event is not Event.PAIR_FAILED:
                up = each.event is Event.PORT_UP
                assert up is not self.told_up, f"told {each.event.name} twice"
                self.told_up = up
        assert self.told_up is self.engine.ready, "nobody was told of the peer"
        return [each.operation for each in actions if isinstance(each, Ended)]

    # -- the engine's host ----------------------------------------------------------------------

    def entered(self, state: PortState) -> None:
        self.states.append(state)
        if state is self.stops_at:
            self.came = True
            if self.stops_at_once:
                raise Stopped

    def has_address(self, gid: bytes) -> bool:
        return gid == ipv4_gid(bytes((10, 9, 0, 1)))
