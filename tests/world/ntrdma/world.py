"""Two ends of NTRDMA in one process, with a seed: deaths, delays, reordering, and a model.

Applications on both sides use pieces of memory that each belong to one operation at a time: sends,
writes, reads, registrations by work request and their ends from either side, shared receives, and
requests that must be refused. The model knows what every byte must be: when an operation is done
its bytes are compared, at the end all of them, those beside the registered memory included. When a
queue pair has been reset on both sides nothing may land in its memory any more: it gets new bytes,
which must stay.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from functools import cache

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.guest.ntrdma.engine.own_commands import StopPair
from bluebridge.guest.ntrdma.engine.transport import Operation
from tests.world.ntrdma.completing import Completing
from tests.world.ntrdma.side import LIST, READ, SLOTS, End, Side

ABSENCES = (0.0, 0.001, 0.5, 3.0, 12.0)
"""Seconds that a side may be away."""


class Death(Enum):
    """An event that a side meets."""

    KILLED = auto()
    """Its process: what is in flight lands in part; the next one has the same memory."""
    REBOOTED = auto()
    """Its machine: the next one has other bytes in memory, and no scratchpads."""
    RELOADED = auto()
    """Its driver: it parts from the peer, and begins anew."""


class Deaths(Completing):
    """Ends sides and links, and brings them back after a time."""

    back_at: float | None = None
    """When the link is there again; None while it is."""

    def link(self, up: bool) -> None:
        """The link goes or comes, and both sides are told."""
        for side in self.sides:
            side.transport.connected = up
            side.transport.lost = 0
            side.link_events.append(up)
        if up:
            self.back_at = None

    def come_back(self) -> None:
        """The link is there again, if it is time.

        What was stored in between is lost, and a link takes longer to come back than an interrupt
        to tell that it went: both sides know by then.
        """
        if self.back_at is not None and self.now >= self.back_at:
            lost = any(side.transport.lost for side in self.sides)
            for side in self.sides:
                while lost and side.link_events:
                    side.engine.link(side.link_events.popleft(), self.now)
            self.link(True)

    def die(self, number: int, how: Death = Death.KILLED, away: float = 0.0) -> None:
        """A side ends, and one that knows nothing begins on the same machine."""
        self.deaths += 1
        dead, peer = self.sides[number], self.sides[1 - number]
        if how is Death.RELOADED:
            self._reload(number)
        dead.transport.die(self.chance)
        machine = self.machines[number]
        machine.let_in, machine.interrupts = False, 0
        if how is Death.REBOOTED:
            machine.memory[:] = self.chance.randbytes(len(machine.memory))
            machine.spads[:] = [0] * len(machine.spads)
        self._forget(number)
        self.sides[number] = self.life(number)
        self.begin(number)
        for end in peer.ends:
            end.connected = False
        peer.transport.connected = False
        peer.link_events.append(False)
        self.back_at = self.now + away
        self.come_back()

    def _reload(self, number: int) -> None:
        dead = self.sides[number]
        dead.engine.part(self.now)
        dead.land()
        dead.engine.close()
        self.poll(number)
        assert not dead.transport.in_flight, "a closed side stores into its peer"

    def _forget(self, number: int) -> None:
        """The operations of a side that has ended."""
        for key in [key for key, each in self.operations.items() if each.number == number]:
            del self.operations[key]
        for operation in self.operations.values():
            operation.orphan = True


STEPS = 300


class World(Deaths):
    """Both sides, the way between them, a clock and the model of their memory."""

    def __init__(self, seed: int, trouble: bool = True) -> None:
        super().__init__(seed)
        self.trouble = trouble
        self.careless = [number for number in (0, 1) if self.chance.random() < 0.3]
        """The sides that take everything at their peer for readable."""
        self.link(True)

    # -- time -----------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens, of all that may."""
        roll = self.chance.random()
        side = self.chance.choice(self.sides)
        if roll < 0.45 and side.transport.in_flight:
            for _ in range(self.chance.randrange(1, 12)):
                if side.transport.in_flight:
                    side.transport.deliver(self.chance)
        elif roll < 0.6 and side.machine.interrupts:
            side.machine.interrupts = 0
            side.engine.interrupt(self.now)
        elif roll < 0.66 and side.link_events:
            side.engine.link(side.link_events.popleft(), self.now)
        elif roll < 0.8:
            self.post(self.sides.index(side))
        elif roll < 0.86:
            self.poll(self.sides.index(side))
        elif roll < 0.88:
            self.connect()
        elif roll < 0.997 or not self.trouble:
            self.tick()
        else:
            self._trouble()
        self.heed()

    def tick(self) -> None:
        """Time passes: a little, or until something is due."""
        self._let_read()
        due = min(side.engine.deadline for side in self.sides)
        if self.back_at is not None:
            due = min(due, self.back_at)
        if due <= self.now or self.chance.random() < 0.3:
            self.now += self.chance.random() * 0.001
        elif due < float("inf"):
            self.now = due
        self.come_back()
        for side in self.sides:
            if side.engine.deadline <= self.now or self.chance.random() < 0.1:
                side.engine.advance(self.now)
            elif side.engine.throttled:
                side.engine.run(self.now)

    def _trouble(self) -> None:
        number = self.chance.randrange(2)
        roll = self.chance.random()
        if roll < 0.5:
            self.die(number, self.chance.choice(tuple(Death)), self.chance.choice(ABSENCES))
        elif roll < 0.7:
            self.link(False)
            self.back_at = self.now + self.chance.choice(ABSENCES)
            self.come_back()
        else:
            side = self.sides[number]
            end = self.chance.choice(side.ends)
            if self.usable(number, end):
                side.engine.own.resources.stop(end.pair)
                side.engine.run(self.now)

    def _let_read(self) -> None:
        """A side without any idea of rights asks to read whatever there is; its peer refuses."""
        for side in (self.sides[number] for number in self.careless):
            for end in side.ends:
                twin = side.engine.remote.pairs.get(end.pair.peer_key)
                if twin is not None:
                    twin.access = (twin.access or 0) | READ
                    for region in twin.regions.values():
                        region.access |= READ

    # -- connections ----------------------------------------------------------------------------

    def connect(self) -> None:
        """Reset what has failed; connect what is fresh on both sides."""
        for index in range(len(self.sides[0].ends)):
            ends = [side.ends[index] for side in self.sides]
            if all(end.fresh and not end.busy for end in ends):
                if all(side.engine.ready for side in self.sides):
                    self._join(index, ends)
                continue
            broken = any(
                end.pair.state is QueueState.ERROR or (not end.fresh and not end.connected)
                for end in ends
            )
            if not broken:
                continue
            for side, end in zip(self.sides, ends, strict=True):
                if not end.busy and not end.fresh:
                    self._reset(side, end)

    def _join(self, index: int, ends: list[End]) -> None:
        for number in (0, 1):
            self.sent[number][index].clear()
            self.refill(number, index)
        for number, (side, end) in enumerate(zip(self.sides, ends, strict=True)):
            end.fresh, end.connected = False, True
            end.pair.state = QueueState.READY_TO_SEND
            end.pair.access = end.access
            end.pair.peer_key = ends[1 - number].pair.key
            end.pair.retry_seconds = 60.0
            side.engine.own.resources.modify(end.pair)
            side.shared.deal()
            side.engine.run(self.now)

    def _reset(self, side: Side, end: End) -> None:
        """Back to RESET, by way of the error state: then nothing is under way."""
        end.busy, end.connected = True, False

        side.drop_fast(end)
        end.waits = side.engine.own.resources.stop(end.pair)
        side.engine.run(self.now)

    def heed(self) -> None:
        """Go on with what the engines have ended."""
        for number, side in enumerate(self.sides):
            for operation in side.ended():
                if operation is side.listing:
                    assert operation.good
                    side.listing, side.listed = None, LIST in side.domains[0].regions
                for end in side.ends:
                    if operation is end.waits:
                        self._goes_on(number, end, operation)

    def _goes_on(self, number: int, end: End, operation: Operation) -> None:
        if isinstance(operation, StopPair):
            self._drop(number, end.index)
            self.refill(number, end.index)
            end.waits = self.sides[number].engine.own.resources.reset(end.pair)
        else:
            end.waits, end.busy, end.fresh = None, False, True

    def _drop(self, number: int, index: int) -> None:
        """Operations whose completions a reset forgets."""
        self.poll(number)
        for key, each in list(self.operations.items()):
            if (each.number, each.index) == (number, index):
                del self.operations[key]
            elif each.index == index:
                each.orphan = True

    # -- the whole ------------------------------------------------------------------------------

    def exchange(self) -> None:
        """Everything in flight lands and is looked at, and completions are taken."""
        for side in self.sides:
            side.hear_links(self.now)
            side.land()
            if side.machine.interrupts:
                side.machine.interrupts = 0
                side.engine.interrupt(self.now)
        for number in (0, 1):
            self.poll(number)
        self.heed()

    def settle(self) -> None:
        """Without trouble, until both sides have nothing to do and everything is connected."""
        self.trouble = False
        for _ in range(4000):
            self.exchange()
            self.connect()
            self._feed()
            if self._settled():
                return
            self.tick()
        states = [(side.engine.port.state.name, side.engine.port.reason) for side in self.sides]
        raise AssertionError(f"no rest: ports {states}, {len(self.operations)} operations")

    def _feed(self) -> None:
        """Receives for all messages that still wait for one; an end for unsignaled requests."""
        for number in (0, 1):
            for end in self.sides[number].ends:
                if len(self.sent[1 - number][end.index]) > end.pair.receives.outstanding:
                    self.post_receive(number, end, SLOTS)
                if self.usable(number, end) and self.waits(number, end):
                    self.post_nop(number, end)

    def _settled(self) -> bool:
        connected = all(
            self.usable(number, end) for number in (0, 1) for end in self.sides[number].ends
        )
        return (
            connected
            and not self.operations
            and not any(side.transport.in_flight or side.machine.interrupts for side in self.sides)
        )

    def check_memory(self) -> None:
        """Neither side has more in use than one that has just begun."""
        assert [side.transport.available for side in self.sides] == list(_available())


@cache
def _available() -> tuple[int, ...]:
    """Free memory of both sides that have just found each other."""
    return tuple(side.transport.available for side in settled(0).sides)


def settled(seed: int) -> World:
    """Both sides, ready and at rest."""
    world = World(seed, trouble=False)
    world.settle()
    return world


def run(seed: int, steps: int = STEPS, trouble: bool = True) -> World:
    """One seed from the beginning to rest."""
    world = World(seed, trouble)
    for _ in range(steps):
        world.step()
    world.check()
    world.settle()
    world.check()
    world.check_twins()
    world.check_memory()
    return world


def replay(seed: int) -> Counter[str]:
    """Run a seed; what happened in it."""
    world = run(seed)
    return Counter(
        {"operations done": world.completed, "failed": world.failed, "deaths": world.deaths}
    )
