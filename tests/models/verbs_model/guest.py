"""One guest twice: what is asked of it is asked of the model and of the hardware, then compared."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.hardware import Machine
from tests.models.verbs_model.pair import PairModel
from tests.models.verbs_model.values import PAGE, Place, Sge, State, Work
from tests.models.verbs_model.world import Side

EVERY = frozenset(State)
TRANSITIONS = {
    Opcode.INIT2INIT_QP: (frozenset({State.INIT}), State.INIT),
    Opcode.INIT2RTR_QP: (frozenset({State.INIT}), State.RTR),
    Opcode.RTR2RTS_QP: (frozenset({State.RTR}), State.RTS),
    Opcode.RTS2RTS_QP: (frozenset({State.RTS}), State.RTS),
    Opcode.SQERR2RTS_QP: (frozenset({State.SQER}), State.RTS),
    Opcode.RTS2SQD_QP: (frozenset({State.RTS, State.SQD}), State.SQD),
    Opcode.SQD2SQD_QP: (frozenset({State.SQD}), State.SQD),
    Opcode.SQD2RTS_QP: (frozenset({State.SQD}), State.RTS),
    Opcode.TOERR_QP: (EVERY, State.ERR),
}
"""Where a command may start, and where it ends (InfiniBand vol. 1, 10.3.1)."""

BLOCK = 2 * PAGE
BASES = (0x20000000, 0x20000000 + BLOCK, 0x21000000)
"""Of blocks of memory; the first two are neighbours."""
PAGES = tuple(base + offset for base in BASES for offset in (0, PAGE))
START = 0x7F0000000123
ALL = int(Rights(0x3F << 10))
SLOTS = range(3)


class Guest:
    """`places` are all regions and windows that ever were, the first one good for everything."""

    def __init__(self, side: Side, machine: Machine) -> None:
        self.side = side
        self.machine = machine
        for number, base in enumerate(BASES):
            self.map(base, number)
        self.begin()

    def begin(self) -> None:
        """What every driver does first."""
        self.places: list[Place] = []
        length = len(PAGES) * PAGE - START % PAGE
        good = Place(0, 1, ALL, START, length, list(PAGES))
        self.add(good)

    # -- life and memory ------------------------------------------------------------------------

    def die(self) -> None:
        """SIGKILL."""
        self.machine.die()
        self.side.die()

    def revive(self) -> None:
        self.machine.start()
        self.side.start()
        self.begin()

    def link(self, *, up: bool) -> None:
        self.machine.link(up=up)
        self.side.up = up

    def map(self, base: int, seed: int) -> None:
        content = bytes((seed + at * 7 + at // 256) & 0xFF for at in range(BLOCK))
        self.machine.map(base, content)
        self.side.memory.blocks[base] = bytearray(content)

    def unmap(self, base: int) -> None:
        self.machine.unmap(base)
        del self.side.memory.blocks[base]

    def store(self, base: int, offset: int, value: bytes) -> None:
        for block in (self.machine.blocks[base], self.side.memory.blocks[base]):
            block[offset : offset + len(value)] = value

    # -- regions and windows ----------------------------------------------------------------------

    def add(self, place: Place) -> None:
        """SW2HW_MPT: the key is the hardware's choice."""
        place.key = self.machine.region(place)
        place.valid = not (place.fast or place.second_type)
        self.places.append(self.side.protection.add(place))

    def destroy(self, place: Place) -> None:
        """HW2SW_MPT, of what exists."""
        if self.side.protection.places.get(place.key >> 8) is place:
            status = self.machine.destroy(place.key)
            done = self.side.protection.remove(place)
            assert status == (Status.OK if done else Status.REG_BOUND)

    def invalidable(self, which: int) -> int:
        """A key that a peer may invalidate, if there is one."""
        found = [p.key for p in self.places if p.valid and (p.fast or p.second_type)]
        return found[which % len(found)] if found else 0

    # -- queue pairs ----------------------------------------------------------------------------

    def pair(self, slot: int) -> PairModel | None:
        """The model's queue pair in a slot, None while it is in RESET."""
        pair = self.side.pairs.get(slot)
        assert pair is None or isinstance(pair, PairModel)
        return pair

    def open(self, slot: int) -> None:
        """RST2INIT, from whatever state."""
        self.close(slot)
        self.machine.open(slot)
        self.side.pairs[slot] = PairModel(self.side, slot)

    def close(self, slot: int) -> None:
        """2RST."""
        self.machine.close(slot)
        self.side.close(slot)

    def transit(
        self, slot: int, opcode: Opcode, values: dict[str, int], *, event: bool = False
    ) -> None:
        """A transition, permitted or not."""
        status = self.machine.transit(slot, opcode, values, event)
        pair = self.pair(slot)
        sources, target = TRANSITIONS[opcode]
        if pair is None or pair.state not in sources:
            assert status == Status.BAD_QP_STATE
            return
        assert status == Status.OK
        apply(pair, opcode, values)
        if target is State.ERR:
            pair.enter_error()
        elif target is State.SQD:
            pair.drain(event=event)
        else:
            pair.move(target)

    def post_send(self, slot: int, work: Work) -> None:
        pair = self.pair(slot)
        if pair is not None and pair.send_room:
            self.machine.post_send(slot, work)
            pair.post_send(work)

    def post_receive(self, slot: int, sges: Sequence[Sge]) -> None:
        """A receive, in the queue that the slot's queue pair takes from."""
        pair = self.pair(slot)
        if pair is None or not pair.receive_room:
            return
        if pair.shared:
            self.machine.post_shared(sges)
            self.side.post_shared(sges)
        else:
            self.machine.post_receive(slot, sges)
            pair.post_receive(sges)

    # -- comparison -----------------------------------------------------------------------------

    def compare(self) -> None:
        """Everything that software can see."""
        for slot, pair in self.side.pairs.items():
            state = self.machine.node.adapter.qps.get(pair.qpn)
            assert state is not None
            assert state.state.name == pair.state.name, (self.side.name, slot)
            found, expected = self.machine.completions(slot), pair.completions
            for send in (True, False):
                seen = [completion for completion in found if completion.send is send]
                wanted = [completion for completion in expected if completion.send is send]
                assert seen == wanted, (self.side.name, slot)
            pair.completions = []
        events = self.machine.events() if self.side.alive else []
        assert sorted(events) == sorted(self.side.events), (
            self.side.name,
            events,
            self.side.events,
        )
        self.side.events = []
        for base, block in self.machine.blocks.items():
            assert block == self.side.memory.blocks[base], (self.side.name, hex(base))


def apply(pair: PairModel, opcode: Opcode, values: dict[str, int]) -> None:
    """What a transition's values mean to the model."""
    for name in ("remote_read", "remote_write", "remote_atomic"):
        if name in values:
            setattr(pair, name, bool(values[name]))
    if opcode is Opcode.INIT2RTR_QP:
        pair.expected_psn = values["next_recv_psn"]
        pair.rnr_timer = values["min_rnr_timer"]
        pair.longest = 1 << values["msg_max"]
    elif opcode is Opcode.RTR2RTS_QP:
        pair.send_psn = values["next_send_psn"]
        pair.timeout = values["pri_ack_timeout"]
        pair.retry_count, pair.rnr_retry = values["retry_count"], values["rnr_retry"]
        pair.read_limit = 1 << values["sra_max"]
