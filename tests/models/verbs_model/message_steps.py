"""Steps that post messages, as a hypothesis state machine does them to model and hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.guest import ALL, BLOCK, SLOTS, Guest
from tests.models.verbs_model.hardware import Hardware
from tests.models.verbs_model.values import (
    ATOMICS,
    RETURNING,
    SENDS,
    UNRELIABLE,
    WRITES,
    Place,
    Sge,
    State,
    Work,
)
from tests.models.verbs_model.world import World

LOCAL: Final = int(Rights.LOCAL_READ | Rights.LOCAL_WRITE)
RIGHTS: Final = (
    ALL,
    ALL,
    ALL & ~int(Rights.BIND_WINDOW),
    LOCAL,
    int(Rights.LOCAL_READ | Rights.REMOTE_READ),
    LOCAL | int(Rights.REMOTE_WRITE),
    LOCAL | int(Rights.REMOTE_ATOMIC | Rights.BIND_WINDOW),
    int(Rights.REMOTE_WRITE),
)
MESSAGES: Final = (
    SendOpcode.SEND,
    SendOpcode.SEND_IMM,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_IMM,
    SendOpcode.RDMA_READ,
    SendOpcode.RDMA_READ,
    SendOpcode.SEND_INVAL,
    *sorted(ATOMICS),
    SendOpcode.NOP,
)
RECEIVED: Final = SENDS | {SendOpcode.RDMA_WRITE_IMM}
SIZES: Final = (64, 8, 0, 1, 7, 63, 200, 1024, 1025, 4096, 5000, 8192)
RNR: Final = (7, 0, 1, 7, 2)
"""Retry counts of connections for receivers that are not ready."""
PSNS: Final = (100, 100, 100, 99, 102, 0xFFFFFF)

guests = st.integers(0, 1)
slots = st.sampled_from((0, 0, 1, 2))
mostly = st.sampled_from((True, True, True, True, True, True, True, False))
rarely = mostly.map(lambda value: not value)
spots = st.tuples(st.integers(0, 23), st.integers(0, BLOCK - 1), st.sampled_from(SIZES), mostly)
"""Of a place: number, offset, length, whether it is to lie inside."""
Spot = tuple[int, int, int, bool]
words = st.sampled_from((0, 1, 0xFF, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF))


Message = tuple[
    int,
    SendOpcode,
    list[Spot],
    Spot,
    bytes | None,
    tuple[int, int, int, int],
    tuple[bool, bool, bool, bool],
]
"""Guest, opcode, gather list, remote address, inline data, operands of an atomic; flags:
signalled, fence, on a connection that is well, with a receive."""


def messages(opcodes: Sequence[SendOpcode]) -> st.SearchStrategy[Message]:
    return st.tuples(
        guests,
        st.sampled_from(opcodes),
        st.lists(spots, max_size=3),
        spots,
        st.none() | st.none() | st.binary(max_size=40),
        st.tuples(words, words, words, words),
        st.tuples(mostly, rarely, st.booleans(), mostly),
    )


def to_rtr(psn: int = 100, longest: int = 30, **_: int) -> dict[str, int]:
    """Values of INIT2RTR: everything is permitted."""
    return {
        "next_recv_psn": psn,
        "mtu": 3,
        "msg_max": longest,
        "min_rnr_timer": 16,
        "rra_max": 7,
        "remote_read": 1,
        "remote_write": 1,
        "remote_atomic": 1,
    }


def to_rts(
    psn: int = 100, retries: int = 2, rnr: int = 7, reads: int = 1, **_: int
) -> dict[str, int]:
    """Values of RTR2RTS."""
    return {
        "next_send_psn": psn,
        "pri_ack_timeout": 14,
        "retry_count": retries,
        "rnr_retry": rnr,
        "sra_max": reads,
    }


ODD = 10
LATEST = 1.1
"""Seconds until a receive that is posted to a queue pair in error is flushed."""


class MessageSteps(RuleBasedStateMachine):
    """Two guests with three queue pairs each, connected slot by slot."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.world, self.hardware = World(), Hardware()
        pairs = zip(self.world.sides, self.hardware.machines, strict=True)
        self._healed = 0
        self.guests = [Guest(side, machine) for side, machine in pairs]

    @initialize()
    def begin(self) -> None:
        for slot in SLOTS:
            self.connect_both(slot)

    @invariant()
    def same(self) -> None:
        """After each step all that is due now has happened, and both say the same."""
        self.compare()
        type(self).steps += 1

    def compare(self) -> None:
        self.let_pass(0)
        for guest in self.guests:
            guest.compare()

    def let_pass(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.hardware.advance(seconds)

    def connect_both(self, slot: int, **more: int) -> None:
        """Both queue pairs of a slot anew, to RTS."""
        for guest in self.guests:
            guest.open(slot)
        for guest in self.guests:
            guest.transit(slot, Opcode.INIT2RTR_QP, to_rtr(**more))
        for guest in self.guests:
            guest.transit(slot, Opcode.RTR2RTS_QP, to_rts(**more))

    def heal(self, slot: int) -> None:
        """Whatever happened to a connection, it is well again."""
        for number in (0, 1):
            self.live(number)
        found = [guest.pair(slot) for guest in self.guests]
        if any(pair is None or pair.state is not State.RTS for pair in found):
            self._healed += 1
            self.connect_both(slot, rnr=RNR[self._healed % len(RNR)], retries=self._healed % 3)

    def live(self, number: int) -> Guest:
        """A guest, started again if it was killed."""
        guest = self.guests[number]
        if not guest.side.alive:
            guest.revive()
        return guest

    # -- messages -------------------------------------------------------------------------------

    def _place(self, guest: Guest, number: int) -> Place:
        """Any, one that was made valid by a work request, or the one that is always good."""
        made = [each for each in guest.places if each.valid and (each.window or each.fast)]
        if number <= 4 or number == ODD:
            return guest.places[number % len(guest.places)]
        if number <= 9 and made:
            return made[number % len(made)]
        return guest.places[0]

    def sge(self, guest: Guest, spot: Spot, length: int | None = None) -> Sge:
        """A piece of memory; the place `ODD` with a key byte that is wrong."""
        number, offset, size, fits = spot
        place = self._place(guest, number)
        size = size if length is None else length
        room = place.length - size
        outside = (-1, room + 1, offset - 64)  # a byte too early, a byte too far, far away
        at = offset % (room + 1) if fits and room >= 0 else outside[offset % 3]
        return place.key ^ (number == ODD), max(0, place.start + at), size

    def _post(self, slot: int, message: Message) -> None:
        """Post a message; `ready`: with a receive for it."""
        number, opcode, here, there, inline, operands, flags = message
        signalled, fence, heal, ready = flags
        if heal:
            self.heal(slot)
        guest, peer = self.guests[number], self.guests[1 - number]
        if guest.pair(slot) is None:
            return
        if ready and opcode in RECEIVED and peer.pair(slot) is not None:
            self._receive(1 - number, slot, [there])
        sges = tuple(self.sge(guest, spot) for spot in here)
        if opcode in ATOMICS:
            word = self.sge(guest, here[0] if here else there, 8)
            sges = (word,) if there[3] else ((*word[:2], 4), (*word[:2], 4))
        if opcode is SendOpcode.NOP:
            sges, inline = (), None
        elif opcode in RETURNING and fence is ready:
            inline = None
        size = sum(sge[2] for sge in sges) if inline is None else len(inline)
        key, va, _ = self.sge(peer, there, size)
        if opcode in ATOMICS and there[3]:
            va = va // 8 * 8
        gone = peer.invalidable(there[0]) if there[3] else key
        work = Work(opcode, sges, inline, va, key, gone, operands, None, signalled, fence)
        guest.post_send(slot, work)

    @rule(message=messages(MESSAGES))
    def message(self, message: Message) -> None:
        """On the queue pair with a receive queue of its own."""
        self._post(0, message)

    @rule(message=messages(MESSAGES))
    def message_to_shared(self, message: Message) -> None:
        """On the queue pair with the shared receive queue."""
        self._post(1, message)

    @rule(message=messages((*sorted(UNRELIABLE), SendOpcode.RDMA_READ)))
    def message_unreliable(self, message: Message) -> None:
        """On UC."""
        self._post(2, message)

    @rule(message=messages(tuple(sorted(RETURNING | WRITES))), slot=st.integers(0, 1))
    def remote_access(self, message: Message, slot: int) -> None:
        """A write, a read or an atomic."""
        self._post(slot, message)

    @rule(message=messages(tuple(sorted(SENDS))), slot=slots)
    def message_received(self, message: Message, slot: int) -> None:
        self._post(slot, message)

    @rule(number=guests, slot=slots, here=st.lists(spots, max_size=2), heal=mostly)
    def receive(self, number: int, slot: int, here: list[Spot], heal: bool) -> None:
        """Post a receive; one that comes to a queue pair in error is flushed a second later."""
        if heal:
            self.heal(slot)
        self._receive(number, slot, here)

    def _receive(self, number: int, slot: int, here: list[Spot]) -> None:
        guest = self.guests[number]
        pair = guest.pair(slot)
        if pair is None:
            return
        guest.post_receive(slot, [self.sge(guest, spot) for spot in here])
        if pair.state is State.ERR:
            self.let_pass(LATEST)
