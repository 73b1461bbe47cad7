"""Ends in NTRDMA's engine: of queue pairs, regions, peers, the engine itself. Nothing leaks."""

from __future__ import annotations

from typing import cast

import pytest

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.device.layout.ntrdma.port import PortState, Spad
from bluebridge.guest.ntrdma.engine.memory import SendEntry, advanced
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import Sizes
from bluebridge.guest.ntrdma.engine.regions import Region
from bluebridge.guest.ntrdma.engine.transport import Operation
from bluebridge.guest.verbs.enums import SendFlags, WcStatus, WrOpcode
from bluebridge.guest.verbs.values import FastRegistration, RecvWr, SendWr, Sge
from tests.world.ntrdma.side import ALL, IOVA, KEY, End, Side
from tests.world.ntrdma.world import World, settled

LARGE = Sizes(1 << 10, 1 << 11, 2, 2)
"""Rings of 96 KiB for receives, 72 KiB for sends, 24 KiB for completions."""


@pytest.fixture
def world() -> World:
    """Two sides that are connected."""
    return settled(1)


def deliver(world: World) -> None:
    """Everything in flight lands, and both sides look."""
    for _ in range(4):
        for side in world.sides:
            side.land()
        for side in world.sides:
            side.engine.interrupt(world.now)


def quiesce(world: World, side: Side) -> None:
    """Its link goes, and what it has stored is carried out."""
    side.engine.link(False, world.now)
    side.land()


def post_write(world: World, side: Side, end: End) -> None:
    """A write whose copy is under way."""
    write = SendWr(1, WrOpcode.RDMA_WRITE, (Sge(IOVA, 8, KEY),), remote_addr=IOVA, rkey=KEY)
    side.engine.own.post_send(end.pair, write)
    side.engine.run(world.now)


def test_a_port_that_has_quiesced_answers_nothing_any_more(world: World) -> None:
    """Sends of the peer that were not served are not, once the next peer may be let in."""
    side = world.sides[1]
    twin, *_ = side.engine.remote.pairs.values()
    for _ in range(twin.send_capacity):
        entry = SendEntry(0, 8, 0, 0, 0, 0, 0, 0, ())
        twin.sends.put(twin.consumed, entry.pack())
    twin.send_produced.set(advanced(twin.consumed, twin.send_capacity, twin.send_capacity))
    side.engine.theirs.rang(twin)
    quiesce(world, side)
    execution, posted = side.engine.theirs.execution, side.transport.posted
    execution.index.set(advanced(execution.consumed, 1, 16))  # a command that had landed
    side.engine.bells.words[0] += 1
    for _ in range(5):
        world.now += 0.1
        side.engine.advance(world.now)
    assert side.engine.port.state is PortState.RESET_REQUESTED
    assert side.transport.posted == posted
    assert side.engine.deadline == float("inf")


def test_receives_posted_during_a_reset_reach_no_ring_that_was_given_back(world: World) -> None:
    side, end = world.sides[0], world.sides[0].ends[0]
    side.engine.own.resources.reset(end.pair)
    side.engine.run(world.now)
    posted = side.transport.posted
    side.engine.own.post_receive(end.pair, RecvWr(1, (Sge(IOVA, 8, KEY),)))
    side.engine.own.push_receives(end.pair)
    assert side.transport.posted == posted
    deliver(world)
    assert end.pair.rings is not None


def test_what_a_lost_peer_knew_can_be_ended_at_the_next(world: World) -> None:
    """A queue pair that failed has no twin there, a region may have none: no error."""
    side = world.sides[0]
    world.die(1)
    world.connect = lambda: None  # type: ignore[method-assign]  # the pairs stay as they are
    for _ in range(2000):
        for each in world.sides:
            each.hear_links(world.now)
        deliver(world)
        world.tick()
    assert all(each.engine.ready for each in world.sides)
    pair = side.ends[0].pair
    assert pair.state is QueueState.ERROR
    operations = [
        side.engine.own.resources.stop(pair),
        side.engine.own.resources.remove(pair),
        side.engine.own.resources.deregister(side.domain, 0x1234),
    ]
    side.engine.run(world.now)
    deliver(world)
    assert [operation.good for operation in operations] == [True] * 3


def test_what_the_peer_refuses_leaves_nothing(world: World) -> None:
    side, peer = world.sides
    before = side.transport.available, peer.transport.available, peer.engine.remote.count
    own = len(side.engine.own.resources.pairs), len(side.domain.regions)
    operations: list[Operation] = []
    queues = side.queues[0], side.queues[1]
    most = peer.transport.map(peer.transport.available - (150 << 10))
    for _ in range(5):
        operations.append(side.engine.own.create_pair(side.domain, LARGE, queues))
        region = Region(0x7700, ALL, 0, 64, 1)
        region.append([(1 << 40, 64)])  # no memory is there
        operations.append(side.engine.own.resources.register(side.domain, region))
        side.engine.run(world.now)
        deliver(world)
    most.free()
    assert [operation.good for operation in operations] == [False] * 10
    after = side.transport.available, peer.transport.available, peer.engine.remote.count
    assert after == before
    assert (len(side.engine.own.resources.pairs), len(side.domain.regions)) == own


def test_a_queue_pair_for_which_there_is_no_memory_leaves_nothing(world: World) -> None:
    side = world.sides[0]
    words = len(side.engine.words.unused)
    rest = side.transport.map(side.transport.available - (600 << 10))
    before = side.transport.available
    for _ in range(5):
        with pytest.raises(MemoryError):
            sizes = Sizes(1 << 14, 1 << 13, 4, 2)
            side.engine.own.create_pair(side.domain, sizes, (side.queues[0],) * 2)
    assert side.transport.available == before
    assert len(side.engine.words.unused) == words
    rest.free()


def test_a_fenced_request_waits_for_reads_before_it(world: World) -> None:
    side, end = world.sides[0], world.sides[0].ends[0]
    read = SendWr(1, WrOpcode.RDMA_READ, (Sge(IOVA, 8, KEY),), remote_addr=IOVA, rkey=KEY)
    write = SendWr(2, WrOpcode.RDMA_WRITE, (Sge(IOVA, 8, KEY),), remote_addr=IOVA + 8, rkey=KEY)
    write.send_flags = SendFlags.SIGNALED | SendFlags.FENCE
    side.engine.own.post_send(end.pair, read)
    side.engine.own.post_send(end.pair, write)
    side.engine.run(world.now)
    sends = end.pair.sends
    assert (len(sends.flying), len(sends.queue)) == (1, 1)
    deliver(world)
    deliver(world)
    assert [wc.wr_id for queue in side.queues for wc in queue.poll(9)] == [1, 2]


def test_a_message_longer_than_its_receive_is_a_lie(world: World) -> None:
    """Its length would lead whoever reads it out of the memory that was given."""
    side, end = world.sides[1], world.sides[1].ends[0]
    twin = side.engine.remote.pairs.get(end.pair.peer_key)
    assert twin is not None
    side.engine.own.post_receive(end.pair, RecvWr(1, (Sge(IOVA, 8, KEY),)))
    entry = SendEntry(0, 4, 0, end.pair.receives.next, 0, 9, 0, 0, ())
    twin.sends.put(twin.consumed, entry.pack())
    twin.send_produced.set(advanced(twin.consumed, 1, twin.send_capacity))
    side.engine.theirs.rang(twin)
    side.engine.run(world.now)
    deliver(world)
    statuses = side.statuses()
    assert statuses == [WcStatus.WR_FLUSH_ERR]
    assert end.pair.state is QueueState.ERROR


def test_a_link_that_goes_ends_requests_behind_their_stores(world: World) -> None:
    side, end = world.sides[0], world.sides[0].ends[0]
    post_write(world, side, end)
    side.engine.link(False, world.now)
    assert not side.machine.let_in
    side.engine.advance(world.now + 0.1)
    assert side.states[-1:] == [PortState.QUIESCE]
    assert not side.statuses()
    side.land()
    side.engine.advance(world.now + 0.2)
    assert side.states[-1:] == [PortState.RESET_REQUESTED]
    statuses = side.statuses()
    assert statuses == [WcStatus.WR_FLUSH_ERR]


def test_an_engine_that_closes_flushes_behind_its_stores(world: World) -> None:
    """Memory of what was flushed may be given away, so its copies must have been made."""
    side, end = world.sides[0], world.sides[0].ends[0]
    post_write(world, side, end)
    side.engine.part(world.now)
    assert not side.machine.let_in
    assert not side.statuses()
    side.land()
    side.engine.close()
    statuses = side.statuses()
    assert statuses == [WcStatus.WR_FLUSH_ERR]


def test_the_answer_about_a_twin_that_a_reset_deletes_is_ignored(world: World) -> None:
    """Else receives would be stored into rings that the peer has given back."""
    side = world.sides[0]
    queues = side.ends[0].pair.send_cq, side.ends[0].pair.recv_cq
    created = side.engine.own.create_pair(side.domain, Sizes(), queues)
    pair = created.pair
    side.engine.own.post_receive(pair, RecvWr(1, (Sge(IOVA, 8, KEY),)))
    side.engine.own.resources.reset(pair)
    side.engine.run(world.now)
    pushed: list[int] = []
    push = pair.receives.push

    def watched(peer: Peer, entries: int, produced: int) -> None:
        pushed.append(entries)
        push(peer, entries, produced)

    pair.receives.push = watched  # type: ignore[method-assign]
    for each, other in ((side, world.sides[1]), (world.sides[1], side)):
        each.land()
        other.engine.interrupt(world.now)
    assert created.good
    assert pushed == []
    deliver(world)
    deliver(world)
    assert pair.rings is not None


@pytest.mark.parametrize("left", [1, 2, 3])
def test_what_a_dead_peer_has_left_is_no_sign_of_life(world: World, left: int) -> None:
    """Its last ping word, found by a port that begins, and by one that begins anew."""
    spads = world.machines[0].spads
    spads[Spad.PING] = left << 16 | 7
    survivor, new = world.sides[0], world.life(0)
    for side in (survivor, new):
        side.engine.stores_failed(world.now)
        side.engine.link(True, world.now)
        side.land()
        for _ in range(20):
            world.now += 0.1
            side.engine.advance(world.now)
        assert side.engine.port.state is PortState.RESET_REQUESTED


@pytest.mark.parametrize("ahead", [True, False])
def test_a_message_leaves_behind_a_registration_that_is_not_answered(
    world: World, ahead: bool
) -> None:
    """The peer knows the registration when the message is there; an older one is waited for."""
    side, peer = world.sides
    end, other = side.ends[0], peer.ends[0]
    if not ahead:
        side.engine.peer.extensions = 0
    fast = end.fast
    assert fast is not None
    key = fast.next_key()
    registers = SendWr(1, WrOpcode.REG_MR, mr=cast(FastRegistration, fast), pages=[side.bus(0)])
    registers.page_size, registers.key, registers.access = 64, key, ALL
    registers.iova, registers.length = side.bus(0) % 64, 8
    receive(world, peer, other)
    for request in (registers, SendWr(3, WrOpcode.SEND, (Sge(IOVA, 8, KEY),))):
        side.engine.own.post_send(end.pair, request)
    side.engine.run(world.now)
    side.land()
    peer.engine.interrupt(world.now)
    assert bool(other.pair.recv_cq.poll(4)) == ahead
    twin = peer.engine.remote.pairs.get(end.pair.key)
    assert twin is not None and key in twin.regions
    deliver(world)
    assert bool(other.pair.recv_cq.poll(4)) != ahead


def test_a_command_is_carried_out_before_a_later_send_whose_bell_was_seen(world: World) -> None:
    """The bell of commands was looked at before it rang, then the sends' index was."""
    side, peer = world.sides
    twin = peer.engine.remote.pairs.get(side.ends[0].pair.key)
    assert twin is not None
    peer.engine.theirs.rang(twin)  # from a send before
    side.engine.own.resources.deregister(side.domain, KEY)
    side.engine.run(world.now)
    side.land()
    bells = peer.engine.bells
    bells.last = bytes(bells.memory.view[: bells.span])
    assert KEY in twin.regions
    peer.engine.run(world.now)
    assert KEY not in twin.regions


def receive(world: World, side: Side, end: End) -> None:
    """Post a receive, and let the peer know it."""
    side.engine.own.post_receive(end.pair, RecvWr(2, (Sge(IOVA, 64, KEY),)))
    side.engine.own.push_receives(end.pair)
    deliver(world)
