"""A peer that lies: garbage in blocks, rings, indices, commands and bells.

It may store anywhere as it is, so what is held here is what our side does: no exception, no copy
out of memory that it may not read, none to where the peer has nothing, and it finds the next peer.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.device.layout.ntrdma.port import DOORBELLS, PEER_INFO, VERSION_TAG, PortState
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.ntrdma.engine.memory import COMPLETION, SendEntry, advanced
from bluebridge.guest.ntrdma.engine.regions import Region
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import Sge
from tests.world.ntrdma.side import ALL, KEY, Side
from tests.world.ntrdma.world import World, settled

SECRET = 0x7700
ROUNDS = 60
WRITE_ONLY = int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)


class Liar:
    """Side 0 of a world, which stores what it likes into the memory of side 1."""

    def __init__(self, seed: int) -> None:
        self.world = settled(seed)
        self.chance = random.Random(seed)
        self.victim: Side = self.world.sides[1]
        side = self.victim
        self.secret = side.transport.map(4096)
        region = Region(SECRET, WRITE_ONLY, 0x9000_0000, 4096, 1)
        region.append([(self.secret.address, 4096)])
        side.engine.own.resources.register(side.domain, region)
        self.world.settle()
        self._watch(side)

    def _watch(self, side: Side) -> None:
        """Every copy is held against what may be read."""
        copy = side.transport.copy
        begin, end = self.secret.address, self.secret.address + 4096
        own = [
            (memory.address, memory.address + len(memory.view))
            for memory in side.transport.arena.blocks
        ]
        area = side.area.address, side.area.address + len(side.area.view)

        def watched(source: int, target: int, length: int) -> None:
            assert source + length <= begin or source >= end, "reads what nobody may read"
            assert any(first <= source <= source + length <= last for first, last in own)
            if area[0] < source + length and source < area[1]:
                assert area[0] + 64 <= source and source + length <= area[1] - 64
            copy(source, target, length)  # which asserts that the target is the peer's memory

        side.transport.copy = watched  # type: ignore[method-assign]

    def number(self, *good: int) -> int:
        """Anything, good numbers included."""
        wild = self.chance.getrandbits(self.chance.choice((4, 8, 31, 32)))
        return self.chance.choice((*good, wild))

    def tell(self, bell: int) -> None:
        """Ring a bell of the victim, signal, and let it look."""
        bells = self.victim.engine.bells.words
        bells[bell] = bells[bell] + 1 & 0xFFFFFFFF
        self.victim.engine.interrupt(self.world.now)
        self.victim.land()

    @property
    def lies(self) -> list[Callable[[], None]]:
        """Return what it stores into memory."""
        return [
            self.lie_in_a_command,
            self.lie_in_a_send,
            self.lie_in_a_receive,
            self.lie_in_a_completion,
            self.lie_in_a_response,
            self.ring_everything,
        ]

    # -- what it does ---------------------------------------------------------------------------

    def lie_in_a_command(self) -> None:
        """Commands of all kinds, known or not, with numbers of all kinds."""
        execution = self.victim.engine.theirs.execution
        op = self.number(*CommandCode)
        command = bytearray(self.chance.randbytes(layout.COMMAND_SIZE))
        layout.RESPONSE.set(command, "op", op)
        layout.RESPONSE.set(command, "pd_key", self.number(0, 1))
        if op == CommandCode.MR_CREATE:
            good = {"key": 3, "capacity": 14, "count": 14, "length": 4096, "address": 0}
            for name, value in good.items():
                layout.MR_CREATE.set(command, name, self.number(value, 13, 1))
        if op == CommandCode.QP_CREATE:
            for name in ("recv_capacity", "recv_pieces", "send_capacity", "send_pieces"):
                layout.QP_CREATE.set(command, name, self.number(1, 16))
        if op in (CommandCode.QP_MODIFY, CommandCode.QP_DELETE):
            layout.QP_MODIFY.set(command, "key", self.number(0x10, 0x11))
            layout.QP_MODIFY.set(command, "state", self.number(*QueueState))
        execution.commands.put(execution.consumed, command)
        execution.index.set(self._index(execution.consumed, 16))
        self.tell(0)

    def lie_in_a_send(self) -> None:
        """Entries of a send ring."""
        twins = list(self.victim.engine.remote.pairs.values())
        if not twins:
            return
        twin = self.chance.choice(twins)
        entry = SendEntry(
            self.chance.getrandbits(64),
            self.chance.choice((*WorkCode, 77)),
            self.chance.choice((0, 0, *WorkStatus, 99)),
            self.number(0, 1),
            self.number(KEY, SECRET),
            self.number(8, 4096),
            self.chance.choice((0x9000_0000, 0x7000_0000, self.chance.getrandbits(64))),
            self.number(0x9000),
            [Sge(self.chance.choice((0x7000_0000, 7)), self.number(8), KEY)]
            * self.chance.choice((0, 1, 3))
            if self.chance.random() < 0.5
            else [],
        )
        twin.sends.put(twin.consumed, entry.pack()[: twin.sends.size])
        twin.send_produced.set(self._index(twin.consumed, twin.send_capacity))
        self.tell(twin.bell)

    def lie_in_a_receive(self) -> None:
        """Entries of a receive ring, and its index."""
        for twin in self.victim.engine.remote.pairs.values():
            twin.receives.put(twin.taken, self.chance.randbytes(twin.receives.size))
            twin.recv_produced.set(self._index(twin.taken, twin.recv_capacity))
        self.world.post(1)

    def lie_in_a_completion(self) -> None:
        """Completions that were not asked for."""
        for pair in self.victim.engine.own.resources.pairs.values():
            sends = pair.sends
            status = self.chance.choice((*WorkStatus, 300))
            sends.completions.put(sends.consumed, COMPLETION.pack(1, 8, status, 1 << 30, 0))
            sends.consumed_word.set(self._index(sends.consumed, sends.capacity))
            self.tell(pair.send_cq.bell)
        self.world.poll(1)

    def lie_in_a_response(self) -> None:
        """Responses to nothing."""
        self.victim.engine.own.commands.index.set(self.number(0, 1, 15, 31))
        self.tell(1)

    def ring_everything(self) -> None:
        """Every bell at once."""
        words = self.victim.engine.bells.words
        for bell in range(DOORBELLS):
            words[bell] = self.chance.getrandbits(32)
        self.tell(self.chance.randrange(DOORBELLS))

    def say_another_state(self) -> None:
        """Ping words of all states."""
        self.victim.engine.port.words[1] = self.number(0, 6 << 16 | 9)
        self.victim.engine.advance(self.world.now + 1)

    def _index(self, now: int, capacity: int) -> int:
        wild = self.number(*(advanced(now, n, capacity) for n in (0, 1, 1, 2)))
        return wild if self.chance.random() < 0.3 else advanced(now, 1, capacity)


@pytest.mark.parametrize("seed", range(60))
def test_a_liar_gets_nothing_and_the_next_peer_is_served(seed: int) -> None:
    liar = Liar(seed)
    liar.world.operations.clear()
    chosen = liar.chance.sample([*liar.lies, liar.say_another_state], 3)
    liar.world.poll = lambda number: None  # type: ignore[method-assign]  # it models the honest
    for _ in range(ROUNDS):
        liar.chance.choice(chosen)()
    assert liar.victim.guards_hold()
    liar.world.die(0)
    assert meet(liar.world)


def meet(world: World) -> bool:
    """Let time pass until the victim has the next peer's resources and no others; whether so."""
    for _ in range(5000):
        for side in world.sides:
            side.hear_links(world.now)
            side.land()
            side.engine.interrupt(world.now)
        world.tick()
        own, remote = world.sides[0].engine.own, world.sides[1].engine.remote
        regions = sum(len(domain.regions) for domain in own.resources.domains.values())
        wanted = len(own.resources.domains) + regions + len(own.resources.pairs)
        if all(side.engine.ready for side in world.sides) and remote.count == wanted:
            return True
    return False


BLOCKS = [
    ("msi_address", 3),
    ("bells", 1 << 60),
    ("bell_count", 2),
    ("bell_count", 1 << 28),
    ("command_capacity", 1 << 30),
    ("command_index", 99),
    ("responses", (1 << 64) - 8),
    ("response_index", 2),
    ("bell_command", 0x400),
    ("init_tag", 0),
]


@pytest.mark.parametrize(("name", "value"), BLOCKS)
def test_a_block_that_makes_no_sense_quiesces(name: str, value: int) -> None:
    side = settled(1).sides[1]
    block = bytearray(side.engine.port.block)
    assert PEER_INFO.get(block, "version_tag") == VERSION_TAG
    assert side.engine.peer.take_init(bytes(block))
    PEER_INFO.set(block, name, value)
    assert not side.engine.peer.take_init(bytes(block))


@pytest.mark.parametrize("versions", [0, 2 | 2 << 16, 0xFFFFFFFF])
def test_a_peer_of_another_version_is_left_alone(versions: int) -> None:
    """The port says why, and begins anew; the peer's memory is not written."""
    world = World(1, trouble=False)
    victim, other = world.sides[1], world.machines[0]
    for turn in range(3000):
        world.tick()
        for side in world.sides:
            side.hear_links(world.now)
        if world.machines[1].spads[1]:
            world.machines[1].spads[1] = versions
        for side in world.sides:
            if side.transport.in_flight:
                side.transport.deliver(world.chance)
                if world.machines[1].spads[1]:
                    world.machines[1].spads[1] = versions
        assert not victim.engine.ready and not world.sides[0].engine.ready, turn
    assert "speaks versions" in victim.engine.port.reason
    assert victim.engine.port.state < PortState.INIT_READY
    assert other.lost_stores == 0
    assert ALL
