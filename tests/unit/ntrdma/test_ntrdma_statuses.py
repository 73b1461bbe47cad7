"""A lie of NTRDMA's peer is answered with a status, or with the end of all between the two."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.device.layout.ntrdma.port import DOORBELLS, PortState
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.ntrdma.engine.memory import (
    COMPLETION,
    SEGMENT,
    Ring,
    SendEntry,
    Word,
    advanced,
)
from bluebridge.guest.ntrdma.engine.own_commands import CommandExecution
from bluebridge.guest.verbs.values import Sge
from tests.unit.ntrdma.test_ntrdma_hostile import SECRET, Liar, meet
from tests.world.ntrdma.side import IOVA, KEY, READ_ONLY, WRITE_ONLY, Side
from tests.world.ntrdma.wire import Machine
from tests.world.ntrdma.world import settled


@pytest.fixture
def victim() -> Side:
    """A side whose peer lies."""
    return settled(1).sides[1]


def command(form_name: str, op: int, **values: int) -> bytes:
    return bytes(getattr(layout, form_name).pack({"op": op, **values}))


def region(count: int, capacity: int, length: int, *segments: tuple[int, int]) -> bytes:
    """A MR_CREATE of key 7 in the peer's first domain."""
    values = {"key": 7, "count": count, "capacity": capacity, "length": length}
    data = bytearray(command("MR_CREATE", CommandCode.MR_CREATE, **values))
    for number, segment in enumerate(segments):
        SEGMENT.pack_into(data, layout.CREATE_LIST + number * SEGMENT.size, *segment)
    return bytes(data)


THERE = 0x1_0000_0000
"""An address of the peer's memory."""


def pair(**values: int) -> bytes:
    """A QP_CREATE of key 0x99, right unless it is told otherwise."""
    places = {"key": 0x99, "send_consumed": THERE, "send_completions": THERE}
    return command("QP_CREATE", CommandCode.QP_CREATE, **{**places, **values})


REFUSED = {
    "an unknown code": command("PD", 99),
    "a code between the known ones": command("PD", 11),
    "a domain that is there": command("PD", CommandCode.PD_CREATE, pd_key=0),
    "a domain beyond the last": command("PD", CommandCode.PD_CREATE, pd_key=0x100),
    "the end of a domain in use": command("PD", CommandCode.PD_DELETE, pd_key=0),
    "the end of no domain": command("PD", CommandCode.PD_DELETE, pd_key=5),
    "14 segments where 13 fit": region(14, 14, 14, *[(THERE, 1)] * 13),
    "more segments than its capacity": region(2, 1, 2, (THERE, 1), (THERE, 1)),
    "no segments": region(0, 0, 0),
    "segments shorter than the region": region(1, 1, 100, (THERE, 99)),
    "a segment where no memory is": region(1, 1, 100, (1 << 60, 100)),
    "a segment that wraps": region(1, 1, 100, ((1 << 64) - 50, 100)),
    "an empty segment": region(1, 1, 0, (THERE, 0)),
    "a key that is there": command(
        "MR_CREATE", CommandCode.MR_CREATE, key=KEY, count=1, capacity=1
    ),
    "more of no region": command("MR_APPEND", CommandCode.MR_APPEND, key=9, count=1, capacity=2),
    "more of a whole region": command(
        "MR_APPEND", CommandCode.MR_APPEND, key=KEY, count=1, capacity=3, position=3
    ),
    "the end of no region": command("MR_DELETE", CommandCode.MR_DELETE, key=9),
    "a queue pair that is there": pair(key=0x10),
    "a queue pair too large": pair(recv_capacity=1 << 20),
    "a queue pair without a bell": pair(completion_bell=DOORBELLS),
    "completions where no memory is": pair(send_completions=1 << 60),
    "an index where no memory is": pair(send_consumed=1 << 60),
    "a state of no queue pair": command("QP_MODIFY", CommandCode.QP_MODIFY, key=0x10, state=9),
    "the end of no queue pair": command("QP_DELETE", CommandCode.QP_DELETE, key=0x99),
    "an address of another": command("RESOLVE", CommandCode.RESOLVE, ip=1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_is_refused(victim: Side, name: str) -> None:
    """Its code comes back with the status of failure, and nothing has changed."""
    before = victim.engine.remote.count, victim.transport.available
    sent = REFUSED[name]
    response = victim.engine.remote.execute(sent)
    op = layout.RESPONSE.get(sent, "op")
    keyed = CommandCode.MR_CREATE <= op <= CommandCode.QP_MODIFY and op in list(CommandCode)
    form = layout.KEYED_RESPONSE if keyed else layout.RESPONSE
    assert form.get(response, "op") == op
    assert form.get(response, "status") == layout.FAILED
    assert (victim.engine.remote.count, victim.transport.available) == before


def test_a_queue_pair_is_made(victim: Side) -> None:
    """The refused ones differ from this one by one value."""
    before = victim.engine.remote.count
    response = victim.engine.remote.execute(pair())
    assert layout.KEYED_RESPONSE.get(response, "status") == layout.OK
    assert victim.engine.remote.count == before + 1


def send(
    op: int,
    *,
    status: int = 0,
    key: int = KEY,
    length: int = 0,
    address: int = IOVA,
    pieces: Sequence[Sge] = (),
) -> SendEntry:
    """An entry of a send ring."""
    return SendEntry(5, op, status, 99, key, length, address, 0, pieces)


def read(key: int = KEY, length: int = 8, address: int = IOVA, into: int = KEY) -> SendEntry:
    """One that asks for 8 bytes, right unless it is told otherwise."""
    pieces = (Sge(IOVA, 8, into),)
    return send(WorkCode.READ, key=key, length=length, address=address, pieces=pieces)


SENDS = {
    "an unknown code": (send(77), WorkStatus.OPCODE),
    "a code of receives": (send(0), WorkStatus.OPCODE),
    "a read of no key": (read(SECRET), WorkStatus.RDMA_KEY),
    "a read beyond the end": (read(address=IOVA - 1), WorkStatus.RDMA_RANGE),
    "a read that wraps": (read(address=(1 << 64) - 4), WorkStatus.RDMA_RANGE),
    "a read of more than 4 GiB": (
        send(WorkCode.READ, pieces=(Sge(IOVA, (1 << 32) - 1, KEY),) * 2),
        WorkStatus.RDMA_RANGE,
    ),
    "a read without the right": (read(WRITE_ONLY), WorkStatus.RDMA_ACCESS),
    "a read into no key": (read(into=1), WorkStatus.LOCAL_PROTECTION),
    "a read to where it may not": (read(into=READ_ONLY), WorkStatus.LOCAL_PROTECTION),
    "a message without a receive": (send(WorkCode.SEND, length=1), WorkStatus.CORRUPT),
    "an end of no registration": (send(WorkCode.SEND_INVALIDATE), WorkStatus.INVALIDATION),
    "a status that is none": (send(WorkCode.WRITE, status=99), WorkStatus.CORRUPT),
}


@pytest.mark.parametrize("name", SENDS)
def test_a_send_ends_with_a_status(victim: Side, name: str) -> None:
    """It is told in the completion, and the own queue pair fails."""
    entry, expected = SENDS[name]
    pair = victim.ends[0].pair
    twin = victim.engine.remote.pairs.get(pair.peer_key)
    assert twin is not None
    place = twin.consumed
    twin.sends.put(place, entry.pack())
    twin.send_produced.set(advanced(place, 1, twin.send_capacity))
    victim.engine.theirs.rang(twin)
    victim.engine.run(0.0)
    completion = COMPLETION.unpack(twin.completions.entry(place))
    assert completion[2] == expected
    assert pair.state is QueueState.ERROR


def test_an_index_beyond_the_ring_of_commands_quiesces(victim: Side) -> None:
    for number, index in enumerate((17, 31, 32, 1 << 31, (1 << 32) - 1)):
        execution: CommandExecution = victim.engine.theirs.execution
        execution.consumed = 0
        execution.index.set(index)
        victim.states.clear()
        victim.engine.bells.words[0] += 1
        victim.engine.run(0.0)
        assert victim.engine.port.reason == "the peer's command index cannot be"
        assert victim.states == ([PortState.QUIESCE] if number == 0 else [])


def test_an_index_beyond_a_ring_of_sends_fails_the_queue_pair(victim: Side) -> None:
    pair = victim.ends[0].pair
    twin = victim.engine.remote.pairs.get(pair.peer_key)
    assert twin is not None
    twin.send_produced.set(2 * twin.send_capacity)
    victim.engine.theirs.rang(twin)
    victim.engine.run(0.0)
    assert pair.state is QueueState.ERROR
    assert victim.engine.ready


def test_completions_of_nothing_fail_the_queue_pair(victim: Side) -> None:
    pair = victim.ends[0].pair
    pair.sends.consumed_word.set(advanced(pair.sends.consumed, 1, pair.sends.capacity))
    victim.engine.bells.words[pair.send_cq.bell] += 1
    victim.engine.run(0.0)
    assert pair.state is QueueState.ERROR
    assert victim.engine.ready


@contextmanager
def fickle(machine: Machine, chance: random.Random) -> Iterator[None]:
    """Index words and ring entries in the memory of `machine` change right after each look."""
    get, entry = Word.get, Ring.entry
    addresses = range(machine.base, machine.base + len(machine.memory))

    def changing_get(word: Word) -> int:
        found = get(word)
        if chance.random() < 0.3 and word.address in addresses:
            word.set(chance.choice((0, found ^ 1, chance.getrandbits(32))))
        return found

    def changing_entry(ring: Ring, index: int) -> bytes:
        found = entry(ring, index)
        if chance.random() < 0.3 and ring.address in addresses:
            ring.put(index, chance.randbytes(ring.size))
        return found

    with (
        mock.patch.object(Word, "get", changing_get),
        mock.patch.object(Ring, "entry", changing_entry),
    ):
        yield


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_memory_that_changes_between_two_looks(seed: int) -> None:
    """Bytes that were read once and checked are used: no exception, no memory nobody may read."""
    liar = Liar(seed)
    liar.world.operations.clear()
    liar.world.poll = lambda number: None  # type: ignore[method-assign]  # it models the honest
    with fickle(liar.victim.machine, liar.chance):
        for _ in range(40):
            liar.chance.choice(liar.lies)()
    assert liar.victim.guards_hold()
    liar.world.die(0)
    assert meet(liar.world)
