"""Tests of what one side of NTRDMA may do to the other, where both keep to the protocol."""

from __future__ import annotations

import pytest

from bluebridge.guest.ntrdma.engine.regions import Domain, FastRegion
from bluebridge.guest.verbs.enums import WcStatus, WrOpcode
from bluebridge.guest.verbs.values import RecvWr, SendWr, Sge
from tests.unit.ntrdma.test_ntrdma_lifetimes import deliver
from tests.world.ntrdma.side import ALL, IOVA, KEY, Side
from tests.world.ntrdma.world import World, settled


@pytest.fixture
def world() -> World:
    """Two sides that are connected."""
    return settled(1)


def statuses(side: Side) -> list[WcStatus]:
    """How what has ended on this side has ended."""
    return side.statuses()


def post(world: World, opcode: WrOpcode, length: int) -> None:
    """Side 0 posts a request, which reaches side 1 and is answered."""
    side = world.sides[0]
    pieces = (Sge(IOVA, length, KEY),)
    side.engine.own.post_send(
        side.ends[0].pair, SendWr(1, opcode, pieces, remote_addr=IOVA, rkey=KEY, send_flags=2)
    )
    side.engine.run(world.now)
    for _ in range(4):
        deliver(world)
        world.tick()


def test_a_message_longer_than_its_receive_moves_no_byte(world: World) -> None:
    sender, receiver = world.sides
    receiver.engine.own.post_receive(receiver.ends[0].pair, RecvWr(1, (Sge(IOVA, 8, KEY),)))
    receiver.engine.own.push_receives(receiver.ends[0].pair)
    deliver(world)
    sender.view(0)[:16], receiver.view(0)[:16] = b"a" * 16, b"b" * 16
    post(world, WrOpcode.SEND, 16)
    assert bytes(receiver.view(0)[:16]) == b"b" * 16
    assert statuses(sender) == [WcStatus.REM_INV_REQ_ERR]
    assert statuses(receiver) == [WcStatus.LOC_LEN_ERR]


def test_a_queue_pair_that_lets_nobody_read_answers_no_read(world: World) -> None:
    world.sides[1].ends[0].pair.access = 0
    post(world, WrOpcode.RDMA_READ, 8)
    assert statuses(world.sides[0]) == [WcStatus.REM_INV_REQ_ERR]


def test_a_queue_pair_that_lets_nobody_write_is_not_written_through(world: World) -> None:
    sender, receiver = world.sides
    twin = sender.engine.remote.pairs.get(sender.ends[0].pair.peer_key)
    assert twin is not None
    twin.access = 0
    sender.view(0)[:8], receiver.view(0)[:8] = b"a" * 8, b"b" * 8
    post(world, WrOpcode.RDMA_WRITE, 8)
    assert bytes(receiver.view(0)[:8]) == b"b" * 8
    assert statuses(sender) == [WcStatus.REM_INV_REQ_ERR]


def test_a_region_is_registered_in_its_own_domain_only() -> None:
    own, other = Domain(1), Domain(2)
    region = FastRegion(own, 0x90, 1)
    request = SendWr(1, WrOpcode.REG_MR, key=region.rkey, access=ALL, iova=IOVA, length=8)
    request.pages, request.page_size = [0x1000], 4096
    assert region.register(other, request) is None and not other.regions
    assert region.register(own, request) is not None
