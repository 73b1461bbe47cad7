"""The steps: a hypothesis state machine that does the same to model and hardware."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.guest import ALL, BASES, PAGES, START, TRANSITIONS, Guest
from tests.models.verbs_model.message_steps import (
    PSNS,
    RIGHTS,
    MessageSteps,
    Spot,
    guests,
    mostly,
    rarely,
    slots,
    spots,
    to_rtr,
    to_rts,
)
from tests.models.verbs_model.values import ATOMICS, PAGE, Bind, Invalidate, Place, Register, Work

AGAIN = (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, *sorted(ATOMICS))


class VerbsMachine(MessageSteps):
    """Steps that change queue pairs, regions and windows, memory, links, guests and time."""

    # -- states ---------------------------------------------------------------------------------

    @rule(
        slot=slots,
        psn=st.sampled_from((100, 0, 0xFFFFFE)),
        retries=st.integers(0, 3),
        rnr=st.sampled_from((7, 0, 1, 3)),
        reads=st.integers(0, 2),
        longest=st.sampled_from((30, 12)),
    )
    def connect(self, slot: int, **values: int) -> None:
        for number in (0, 1):
            self.live(number)
        self.connect_both(slot, **values)

    @rule(
        number=guests,
        slot=slots,
        opcode=st.sampled_from(sorted(TRANSITIONS)),
        fits=mostly,
        psn=st.sampled_from(PSNS),
        rights=st.tuples(mostly, mostly, mostly),
        event=st.booleans(),
    )
    def modify(
        self,
        number: int,
        slot: int,
        opcode: Opcode,
        fits: bool,
        psn: int,
        rights: tuple[bool, bool, bool],
        event: bool,
    ) -> None:
        """Any transition from any state; one that is permitted if it is to fit."""
        guest = self.live(number)
        pair = guest.pair(slot)
        if fits and pair is not None:
            fitting = [each for each in sorted(TRANSITIONS) if pair.state in TRANSITIONS[each][0]]
            opcode = fitting[opcode % len(fitting)]
        values = {}
        if opcode is Opcode.INIT2RTR_QP:
            values = to_rtr(psn)
        elif opcode is Opcode.RTR2RTS_QP:
            values = to_rts(psn)
        if opcode in (Opcode.INIT2RTR_QP, Opcode.RTS2RTS_QP, Opcode.INIT2INIT_QP):
            names = ("remote_read", "remote_write", "remote_atomic")
            values |= dict(zip(names, map(int, rights), strict=True))
        guest.transit(slot, opcode, values, event=event and opcode is Opcode.RTS2SQD_QP)

    @rule(number=guests, slot=slots, again=st.booleans())
    def reset(self, number: int, slot: int, again: bool) -> None:
        guest = self.live(number)
        guest.close(slot)
        if again:
            guest.open(slot)

    # -- regions and windows --------------------------------------------------------------------

    @rule(
        number=guests,
        pages=st.lists(st.sampled_from(PAGES), min_size=1, max_size=4),
        begin=st.integers(0, PAGE - 1),
        cut=st.integers(0, 100),
        rights=st.sampled_from(RIGHTS),
        pd=st.sampled_from((1, 1, 1, 2)),
    )
    def register(
        self, number: int, pages: list[int], begin: int, cut: int, rights: int, pd: int
    ) -> None:
        length = max(1, len(pages) * PAGE - begin - cut)
        pages = pages[: (begin + length - 1) // PAGE + 1]
        place = Place(0, pd, rights, 0x10000 + begin, length, pages)
        self.live(number).add(place)

    @rule(number=guests, kind=st.integers(0, 2), pd=st.sampled_from((1, 1, 1, 2)))
    def allocate(self, number: int, kind: int, pd: int) -> None:
        """A free region for REG_MR, or a window of type 1 or 2."""
        place = Place(0, pd, fast=not kind, room=3, window=bool(kind), second_type=kind == 2)
        self.live(number).add(place)

    @rule(number=guests, which=st.integers(0, 23))
    def deregister(self, number: int, which: int) -> None:
        """Give a region or window back, but not the good one."""
        guest = self.live(number)
        if which % len(guest.places):
            guest.destroy(guest.places[which % len(guest.places)])

    @rule(
        number=guests,
        slot=slots,
        which=st.integers(0, 23),
        spot=spots,
        pages=st.lists(st.sampled_from(PAGES), min_size=4, max_size=4),
        rights=st.sampled_from(RIGHTS),
        low=st.integers(0, 3),
        flags=st.tuples(rarely, mostly, mostly, rarely),
    )
    def change_by_work_request(
        self,
        number: int,
        slot: int,
        which: int,
        spot: Spot,
        pages: list[int],
        rights: int,
        low: int,
        flags: tuple[bool, bool, bool, bool],
    ) -> None:
        """REG_MR, BIND_MW or LOCAL_INV, which one as it suits the place and its state."""
        odd, signalled, heal, fence = flags
        if heal:
            self.heal(slot)
        guest = self.guests[number]
        if guest.pair(slot) is None:
            return
        usable = [place for place in guest.places if place.fast or place.window]
        if not usable:
            usable = [Place(0, 1, fast=not low, room=3, window=bool(low), second_type=low == 2)]
            guest.add(usable[0])
        place = usable[which % len(usable)]
        key = place.key & ~0xFF | low
        free = (place.window and not place.second_type) or not place.valid
        if free is odd:
            action: Register | Bind | Invalidate = Invalidate(place.key)
            opcode = SendOpcode.LOCAL_INVAL
        elif place.window:
            lkey, va, length = self.sge(guest, spot)
            access = rights & int(Rights.REMOTE_READ | Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
            second = place.second_type is not (odd and low == 0)
            action = Bind(key, lkey, va, length, access, low == 1, second)
            opcode = SendOpcode.BIND_MW
        else:
            start, length = START + spot[1], spot[2] or 8 * spot[3]
            needed = max(1, (start + length - 1) // PAGE - start // PAGE + 1)
            rights &= ~int(Rights.BIND_WINDOW)
            action = Register(key, start, length, rights, tuple(pages[:needed]))
            opcode = SendOpcode.FAST_REG_MR
        guest.post_send(slot, Work(opcode, action=action, signalled=signalled, fence=fence))

    @rule(
        number=guests,
        slot=st.integers(0, 1),
        rights=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    )
    def permit(self, number: int, slot: int, rights: tuple[bool, bool, bool]) -> None:
        """What a peer may do on a connection that is well, and a write, a read and an atomic."""
        self.heal(slot)
        names = ("remote_read", "remote_write", "remote_atomic")
        values = dict(zip(names, map(int, rights), strict=True))
        guest, peer = self.guests[number], self.guests[1 - number]
        for opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FA):
            self.heal(slot)
            guest.transit(slot, Opcode.RTS2RTS_QP, values)
            self._reach(peer, slot, opcode, guest.places[0])

    @rule(
        number=guests,
        on=st.tuples(st.integers(0, 1), st.integers(0, 1)),
        flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        pages=st.lists(st.sampled_from(PAGES), min_size=2, max_size=2),
        at=st.integers(0, 64),
    )
    def show(
        self,
        number: int,
        on: tuple[int, int],
        flags: tuple[bool, bool, bool],
        pages: list[int],
        at: int,
    ) -> None:
        """A window into a fresh region, which the peer uses on any queue pair; then it all ends."""
        second, region_first, own_first = flags
        for slot in (0, 1):
            self.heal(slot)
        guest, peer, slot = self.guests[number], self.guests[1 - number], on[0]
        region = Place(0, 1, ALL, START, PAGE + 100, pages)
        window = Place(0, 1, window=True, second_type=second)
        for place in (region, window):
            guest.add(place)
        access = int(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
        bind = Bind(window.key, region.key, START + at, 200, access, own_first, second)
        guest.post_send(slot, Work(SendOpcode.BIND_MW, action=bind))
        self._reach(peer, on[1], SendOpcode.RDMA_WRITE, window)
        if region_first:
            guest.destroy(region)
        self.heal(slot)
        guest.post_send(slot, Work(SendOpcode.LOCAL_INVAL, action=Invalidate(window.key)))
        self._reach(peer, slot, SendOpcode.RDMA_READ, window)
        for place in (window, region):
            guest.destroy(place)

    def _reach(
        self, guest: Guest, slot: int, opcode: SendOpcode, place: Place, *, fence: bool = False
    ) -> None:
        """The first aligned word of a place of the peer's, from the good place of a guest."""
        if guest.pair(slot) is None:
            return
        good = guest.places[0]
        sges = ((good.key, good.start, 8),)
        there = place.start if place.length < 16 else -(-place.start // 8) * 8
        work = Work(opcode, sges, None, there, place.key, 0, (1, 2, 3, 4), fence=fence)
        guest.post_send(slot, work)
        self.compare()

    # -- the world ------------------------------------------------------------------------------

    @rule(number=guests, base=st.sampled_from(BASES), seed=st.integers(0, 255))
    def map_or_unmap(self, number: int, base: int, seed: int) -> None:
        """Memory goes, or comes again."""
        guest = self.guests[number]
        if base in guest.machine.blocks:
            guest.unmap(base)
        else:
            guest.map(base, seed)

    @rule(number=guests, base=st.sampled_from(BASES), at=st.integers(0, 8128), value=st.binary())
    def store(self, number: int, base: int, at: int, value: bytes) -> None:
        """Software writes; memory that was gone comes."""
        guest = self.guests[number]
        if base in guest.machine.blocks:
            guest.store(base, at, value[:64])
        else:
            guest.map(base, at & 0xFF)

    @rule(number=guests, kill=rarely)
    def kill_or_cut(self, number: int, kill: bool) -> None:
        """A guest is killed, or started again; or its link goes down, or up."""
        guest = self.guests[number]
        if not guest.side.alive:
            guest.revive()
        elif kill:
            guest.die()
        else:
            guest.link(up=not guest.side.up)

    @rule(number=guests)
    def join(self, number: int) -> None:
        self.live(number).link(up=True)

    @rule(count=st.integers(1, 3))
    def lose_answers(self, count: int) -> None:
        """The next answers of whichever side never arrive: their requests come again."""
        self.world.answers_to_lose = self.hardware.loss.answers = count

    @rule(
        number=guests,
        slot=st.integers(0, 1),
        first=st.sampled_from(AGAIN),
        second=st.sampled_from(AGAIN),
        fence=st.booleans(),
    )
    def come_again(
        self, number: int, slot: int, first: SendOpcode, second: SendOpcode, fence: bool
    ) -> None:
        """Requests whose answers are lost, one behind a fence or not, one more, and their time."""
        self.heal(slot)
        guest, peer = self.guests[number], self.guests[1 - number]
        self.lose_answers(2)
        self._reach(guest, slot, first, peer.places[0])
        self._reach(guest, slot, second, peer.places[0], fence=fence)
        self._reach(guest, slot, first, peer.places[0])
        self.let_pass(0.3)

    @rule(seconds=st.sampled_from((0.0005, 0.003, 0.03, 0.1, 0.7, 3.0)))
    def wait(self, seconds: float) -> None:
        self.let_pass(seconds)
