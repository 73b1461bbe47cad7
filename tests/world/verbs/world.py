"""Random steps of two guests and their adapters, judged by the oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Message, Request, Response
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.net.roce import ATOMICS, Op
from bluebridge.device.rdma.memory.region import Rights
from tests.models.rdma_node import ALL_REMOTE
from tests.models.watched_fabric import WatchedFabric
from tests.oracle.clauses import Broken
from tests.oracle.memory import PAGE, Place
from tests.oracle.pair import TRANSITIONS
from tests.oracle.work import RETURNING, UNRELIABLE, Bind, Invalidate, Local, Register, Sge, Work
from tests.world.verbs.guest import ALL, PAGES, SLOTS, START, Guest
from tests.world.weather import CALM, Weather

STEPS = 60
LOCAL = int(Rights.LOCAL_READ | Rights.LOCAL_WRITE)
REMOTE = int(Rights.REMOTE_READ | Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
RIGHTS = (
    ALL,
    ALL,
    ALL & ~int(Rights.BIND_WINDOW),
    LOCAL,
    int(Rights.LOCAL_READ | Rights.REMOTE_READ),
    LOCAL | int(Rights.REMOTE_WRITE),
    LOCAL | int(Rights.REMOTE_ATOMIC | Rights.BIND_WINDOW),
    int(Rights.REMOTE_WRITE),
)
ONE_SIDED = (Op.WRITE, *sorted(RETURNING))
RECEIVED = (Op.SEND, Op.SEND_IMM, Op.SEND_INV, Op.WRITE_IMM)
KINDS = (*RECEIVED, *ONE_SIDED, Op.WRITE, Op.READ)
SIZES = (64, 8, 0, 1, 7, 63, 200, 1024, 1025, 4096, 5000, 8192)
WORDS = (0, 1, 0xFF, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF)
WAITS = (0.0005, 0.003, 0.03, 0.1, 0.7, 3.0)
FLUSHED = 1.1
"""Seconds until a receive that is posted to a queue pair in error is flushed."""
STORMS = (Weather(0.5, 0, 0, 0), Weather(0.3, 0.2, 0.3, 0, 0.1), Weather(0.9, 0, 0, 0))
STEP_SHARES = {
    "message": 14,
    "change": 5,
    "show": 2,
    "modify": 4,
    "reset": 1,
    "register": 2,
    "deregister": 1,
    "storm": 5,
    "wait": 3,
}
"""How often each kind of step comes."""


class World:
    """Two guests with three queue pairs each, on a network with weather."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.choose = self.random.choice
        self.weather = CALM
        self.now = 0.0
        self.messages = 0
        self._broken: Broken | None = None
        self.fabric = LocalFabric()
        self.fabric.stage = self
        watched = WatchedFabric(self.fabric)
        watched.watch = self._leaves
        self.guests = [
            Guest(name, number, watched, lambda: self.now, base)
            for name, number, base in (("a", 1, 0x800240), ("b", 2, 0x250))
        ]
        self.guests[0].peer, self.guests[1].peer = self.guests[1], self.guests[0]
        for slot in SLOTS:
            self.heal(slot)

    # -- network and clock ----------------------------------------------------------------------

    def _leaves(self, source: FabricPort, message: Message) -> bool:
        if isinstance(message, Request | Response):
            self.messages += 1
            try:
                self.observe()
                self._of(source).leaves(message)
            except Broken as error:  # the network goes on when a port's receiver fails
                self._broken = self._broken or error
        return True

    def _of(self, port: FabricPort) -> Guest:
        return next(guest for guest in self.guests if guest.port is port)

    def admit(
        self, source: FabricPort, targets: Sequence[FabricPort], message: Message
    ) -> tuple[Sequence[FabricPort], int]:
        """The network's `Stage`: what becomes of a message."""
        if not isinstance(message, Request | Response):
            return targets, 0
        self.observe()
        receiver, now = self._of(source).peer, list[FabricPort]()
        for late, _damaged in self.weather.copies(self.random) if targets else ():
            if late:
                kept = replace(message, payload=[memoryview(b"".join(message.payload))])
                self._delay(late, receiver, targets, kept)
            else:
                receiver.arrives(message)
                now += targets
        return now, 0

    def _delay(
        self, late: float, guest: Guest, targets: Sequence[FabricPort], message: Request | Response
    ) -> None:
        def deliver() -> None:
            self.observe()
            guest.arrives(message)
            self.fabric.deliver_late(targets, message)

        guest.host.call_later(late, deliver)

    def observe(self) -> None:
        """The oracle sees what the adapters have told so far."""
        if self._broken is not None:
            raise self._broken
        for guest in self.guests:
            guest.observe()

    def let_pass(self, seconds: float) -> None:
        """Move both clocks: what is due runs in the order of time, A's before B's."""
        end, due = self.now + seconds, self.now
        hosts = [guest.host for guest in self.guests]
        while due <= end:
            self.now = max(self.now, due)
            for host in hosts:
                host.now = self.now
            for host in hosts:
                host.run()
            self.observe()
            due = min(host.next_due for host in hosts)
        self.now = end
        for host in hosts:
            host.now = end

    def run(self, steps: int = STEPS) -> None:
        """So many steps; after each one all that is due has happened."""
        for _ in range(steps):
            (name,) = self.random.choices(list(STEP_SHARES), list(STEP_SHARES.values()))
            step: Callable[[], None] = getattr(self, name)
            step()
            self.rest()

    def rest(self) -> None:
        """All that is due now happens, and the oracle looks at everything."""
        self.let_pass(0)
        if self._broken is not None:
            raise self._broken
        for guest in self.guests:
            guest.rest()

    # -- choices --------------------------------------------------------------------------------

    def mostly(self, chance: float = 0.875) -> bool:
        """Return True that often."""
        return self.random.random() < chance

    def guest(self) -> Guest:
        """Either."""
        return self.choose(self.guests)

    def slot(self) -> int:
        """The queue pair with receives of its own twice as often as each other one; mostly well."""
        slot = self.choose((0, 0, 1, 2))
        if self.mostly():
            self.heal(slot)
        return slot

    def heal(self, slot: int) -> None:
        """Unless both are in RTS, both queue pairs of a slot anew; a message may come early."""
        pairs = [guest.pairs.get(slot) for guest in self.guests]
        if all(pair is not None and pair.state == "RTS" for pair in pairs):
            return
        psn = self.choose((100, 100, 0, 0xFFFFFE))
        for guest in self.guests:
            guest.open(slot)
        for guest in self.guests:
            guest.transit(slot, Opcode.INIT2RTR_QP, self.to_rtr(psn) | dict.fromkeys(ALL_REMOTE, 1))
        for guest in self.random.sample(self.guests, 2):
            guest.transit(slot, Opcode.RTR2RTS_QP, self.to_rts(psn))
            if self.mostly(0.05):
                self._reach(guest, slot, Op.WRITE)

    def to_rtr(self, psn: int) -> dict[str, int]:
        """Values of INIT2RTR."""
        return {
            "next_recv_psn": psn,
            "mtu": 3,
            "msg_max": self.choose((30, 30, 30, 12)),
            "min_rnr_timer": 16,
            "rra_max": 7,
        }

    def to_rts(self, psn: int) -> dict[str, int]:
        """Values of RTR2RTS."""
        return {
            "next_send_psn": psn,
            "pri_ack_timeout": 14,
            "retry_count": self.choose((0, 1, 2, 7)),
            "rnr_retry": self.choose((7, 7, 0, 1, 2)),
            "sra_max": self.choose((1, 1, 0, 2)),
        }

    def sge(self, guest: Guest, length: int | None = None) -> Sge:
        """A piece of memory; now and then a byte too early or too far, or with a wrong key byte.

        Of any place, of one that a work request has made valid, or of the one that is always good.
        """
        made = [each for each in guest.places if each.valid and (each.window or each.fast)]
        place = self.choose(
            self.choose((guest.places, made, *[guest.places[:1]] * 3)) or guest.places
        )
        size = self.choose(SIZES) if length is None else length
        room = place.length - size
        at = self.choose((-1, room + 1, self.random.randrange(2 * PAGE) - 64))
        if room >= 0 and self.mostly():
            at = self.random.randint(0, room)
        return Sge(place.key ^ self.mostly(0.04), max(0, place.start + at), size)

    # -- messages -------------------------------------------------------------------------------

    def message(self) -> None:
        """Some of a kind, mostly on a connection that is well, and with receives for them."""
        slot, op = self.slot(), self.choose(KINDS)
        if slot == 2 and self.mostly():
            op = self.choose(sorted(UNRELIABLE))
        guest = self.guest()
        for _ in range(self.choose((1, 1, 1, 2, 3))):
            if self.mostly() and op in RECEIVED:
                self._receive(guest.peer, slot)
            guest.send(slot, self._work(guest, op))

    def _work(self, guest: Guest, op: Op | Local) -> Work:
        sges = tuple(self.sge(guest) for _ in range(self.choose((1, 1, 0, 2, 3))))
        inlined = None
        if op in ATOMICS:
            key, va, _ = self.sge(guest, 8)
            sges = (Sge(key, va, 8),) if self.mostly() else (Sge(key, va, 4),) * 2
        if self.mostly(0.05 if op in RETURNING else 0.3):
            inlined = self.random.randbytes(self.random.randrange(40))
        work = Work(op, sges, inlined) if isinstance(op, Op) else Work(op)
        key, va, _ = self.sge(guest.peer, work.length)
        if op in ATOMICS and self.mostly():
            va = va // 8 * 8
        first, compare, mask, compare_mask = self.random.choices(WORDS, k=4)
        gone = [each.key for each in guest.peer.places if each.valid and each.may_end]
        return replace(
            work,
            remote=va,
            rkey=key,
            immediate=self.choose(gone) if gone and self.mostly() else key,
            operands=(first, compare, mask, compare_mask),
            signalled=self.mostly(),
            fence=not self.mostly(),
        )

    def _receive(self, guest: Guest, slot: int) -> None:
        pair = guest.pairs.get(slot)
        if pair is not None:
            guest.receive(slot, [self.sge(guest) for _ in range(self.choose((1, 1, 0, 2)))])
            if pair.state == "ERR":
                self.let_pass(FLUSHED)

    # -- states ---------------------------------------------------------------------------------

    def modify(self) -> None:
        """Any transition from any state, mostly one that is permitted."""
        guest, slot = self.guest(), self.slot()
        pair, opcodes = guest.pairs.get(slot), sorted(TRANSITIONS)
        if pair is not None and self.mostly():
            opcodes = [each for each in opcodes if pair.state in TRANSITIONS[each][0]]
        opcode, psn = self.choose(opcodes), self.choose((100, 100, 100, 99, 102, 0xFFFFFF))
        values: dict[str, int] = {}
        if opcode is Opcode.RTR2RTS_QP:
            values = self.to_rts(psn)
        elif opcode in (Opcode.INIT2RTR_QP, Opcode.RTS2RTS_QP, Opcode.INIT2INIT_QP):
            values = self.to_rtr(psn) if opcode is Opcode.INIT2RTR_QP else {}
            values |= {name: self.choose((1, 1, 0)) for name in ALL_REMOTE}
        drains = opcode is Opcode.RTS2SQD_QP and self.mostly()
        guest.transit(slot, opcode, values, drains=drains)
        if opcode is Opcode.RTS2RTS_QP:
            self._reach(guest.peer, slot, self.choose(ONE_SIDED))

    def reset(self) -> None:
        """A queue pair goes, and perhaps comes again."""
        guest, slot = self.guest(), self.slot()
        guest.close(slot)
        if self.mostly():
            guest.open(slot)

    # -- regions and windows --------------------------------------------------------------------

    def _place(self, kind: int) -> Place:
        """A free region for REG_MR, or a window of type 1 or 2."""
        pd = self.choose((1, 1, 1, 1, 2))
        return Place(0, pd, fast=not kind, room=3, window=bool(kind), second_type=kind == 2)

    def register(self) -> None:
        """A region of any pages, or what work requests give memory to."""
        place = self._place(self.random.randrange(3))
        if self.mostly(0.5):
            place.fast = place.window = place.second_type = False
            place.pages = self.random.choices(PAGES, k=self.random.randint(1, 4))
            begin, cut = self.random.randrange(PAGE), self.random.randrange(100)
            place.start, place.rights = 0x10000 + begin, self.choose(RIGHTS)
            place.length = max(1, len(place.pages) * PAGE - begin - cut)
        self.guest().add(place)

    def deregister(self) -> None:
        """Give a region or window back, but not the good one."""
        guest = self.guest()
        if guest.places[1:]:
            guest.destroy(self.choose(guest.places[1:]))

    def change(self) -> None:
        """REG_MR, BIND_MW or LOCAL_INV, which one as it suits the place and its state."""
        slot, guest, low = self.slot(), self.guest(), self.random.randrange(4)
        usable = [place for place in guest.places if place.fast or place.window]
        place = self.choose(usable or [guest.add(self._place(low % 3))])
        local: Local = Invalidate(place.key)
        if ((place.window and not place.second_type) or not place.valid) is self.mostly():
            local = self._filling(guest, place, place.key & ~0xFF | low)
        guest.send(slot, Work(local, signalled=self.mostly(), fence=not self.mostly()))

    def _filling(self, guest: Guest, place: Place, key: int) -> Local:
        rights = self.choose(RIGHTS)
        if place.window:
            lkey, va, length = self.sge(guest)
            second = place.second_type is self.mostly(0.96)
            return Bind(key, lkey, va, length, rights & REMOTE, self.mostly(0.25), second)
        start, length = START + self.random.randrange(2 * PAGE), self.choose(SIZES)
        needed = max(1, (start + length - 1) // PAGE - start // PAGE + 1)
        pages = tuple(self.random.choices(PAGES, k=needed))
        return Register(key, start, length, rights & ~int(Rights.BIND_WINDOW), pages)

    def show(self) -> None:
        """A window into a fresh region, which the peer uses on any queue pair; then it all ends."""
        for slot in (0, 1):
            self.heal(slot)
        guest, slot, second = self.guest(), self.choose((0, 1)), self.mostly(0.5)
        pages = self.random.choices(PAGES, k=2)
        region = guest.add(Place(0, 1, ALL, START, PAGE + 100, pages))
        window = guest.add(Place(0, 1, window=True, second_type=second))
        at = START + self.random.randrange(64)
        bind = Bind(window.key, region.key, at, 200, REMOTE, self.mostly(0.5), second)
        guest.send(slot, Work(bind))
        self._reach(guest.peer, self.choose((0, 1)), Op.WRITE, window)
        if self.mostly(0.5):
            guest.destroy(region)
        self.heal(slot)
        guest.send(slot, Work(Invalidate(window.key)))
        self._reach(guest.peer, slot, Op.READ, window)
        for place in (window, region):
            guest.destroy(place)

    def _reach(self, guest: Guest, slot: int, op: Op, place: Place | None = None) -> None:
        """The first word of a place of the peer's, from the good place of a guest."""
        own, place = guest.places[0], place or guest.peer.places[0]
        at = place.start if place.length < 16 else -(-place.start // 8) * 8
        word = Sge(own.key, own.start, 8)
        guest.send(slot, Work(op, (word,), None, at, place.key, 0, (1, 2, 3, 4)))
        self.rest()

    # -- the world ------------------------------------------------------------------------------

    def storm(self) -> None:
        """Requests while messages are lost, doubled and late; perhaps they are to be drained."""
        slot = self.choose((0, 0, 1))
        self.heal(slot)
        guest, self.weather = self.guest(), self.choose(STORMS)
        for op in self.random.choices((*ONE_SIDED, *RECEIVED), k=4):
            if op in RECEIVED:
                self._receive(guest.peer, slot)
            if self.mostly(0.6):
                self._reach(guest, slot, op)
            else:
                guest.send(slot, self._work(guest, op))
        drains = self.mostly(0.5)
        if drains:
            guest.transit(slot, Opcode.RTS2SQD_QP, {}, drains=True)
        self.wait()
        if self.mostly():
            self.weather = CALM
        self.let_pass(0.3)
        self.rest()
        if drains:
            guest.transit(slot, Opcode.SQD2RTS_QP, {})

    def wait(self) -> None:
        """Time passes."""
        self.let_pass(self.choose(WAITS))


def replay(seed: int) -> Counter[str]:
    """Run a seed; what happened in it."""
    world = World(seed)
    world.run()
    return Counter(steps=STEPS, messages=world.messages)
