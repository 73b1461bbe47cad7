"""Protection: for each rule, what both sides are told, and that no byte moved.

The rows are those of the InfiniBand specification's memory protection and of a responder's
checks: keys, protection domains, ranges, rights, lengths, sequence numbers, receives, retries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import AccessFlags, QpState, SendWr, Sge, WcStatus, WrOpcode
from tests.models.players import (
    ATOMICS,
    ONE_SIDED,
    PATTERN,
    SIZE,
    Player,
    connected,
    fill,
    request_for,
    untouched,
)

LOCAL = AccessFlags.LOCAL_WRITE
READ, WRITE, ATOMIC = (AccessFlags.REMOTE_READ, AccessFlags.REMOTE_WRITE, AccessFlags.REMOTE_ATOMIC)
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
REMOTE, INVALID = WcStatus.REM_ACCESS_ERR, WcStatus.REM_INV_REQ_ERR
EDGE = (1 << 64) - 4

Spoil = Callable[[Player, Player, SendWr], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One violation: what the requester's completion says, what the responder's receive says.

    `state` is where the responder's queue pair ends; the requester's ends in ERR.
    """

    name: str
    spoil: Spoil
    status: WcStatus
    state: QpState = QpState.ERR
    receive: WcStatus | None = None


def wrong_key_byte(a: Player, b: Player, wr: SendWr) -> None:
    wr.rkey ^= 1


def unknown_key(a: Player, b: Player, wr: SendWr) -> None:
    wr.rkey ^= 0x00300000


def key_of_the_wrong_generation(a: Player, b: Player, wr: SendWr) -> None:
    wr.rkey ^= 0x80000000


def other_domain(a: Player, b: Player, wr: SendWr) -> None:
    wr.rkey = b.ctx.alloc_pd().reg_mr(b.address, SIZE, access=LOCAL | READ | WRITE | ATOMIC).rkey


def deregistered(a: Player, b: Player, wr: SendWr) -> None:
    b.mr.close()


def before_the_start(a: Player, b: Player, wr: SendWr) -> None:
    wr.remote_addr -= 8


def behind_the_end(a: Player, b: Player, wr: SendWr) -> None:
    wr.remote_addr += SIZE - 4 if wr.opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ) else SIZE


def wrapping_around(a: Player, b: Player, wr: SendWr) -> None:
    wr.remote_addr = EDGE & ~7 if wr.opcode in ATOMICS else EDGE


def no_right(a: Player, b: Player, wr: SendWr) -> None:
    granted = {
        WrOpcode.RDMA_WRITE: LOCAL | READ | ATOMIC,
        WrOpcode.RDMA_READ: LOCAL | WRITE | ATOMIC,
    }.get(wr.opcode, LOCAL | READ | WRITE)
    wr.rkey = b.pd.reg_mr(b.address, SIZE, access=granted).rkey


def queue_pair_forbids(a: Player, b: Player, wr: SendWr) -> None:
    b.access = {WrOpcode.RDMA_WRITE: READ | ATOMIC, WrOpcode.RDMA_READ: WRITE | ATOMIC}.get(
        wr.opcode, READ | WRITE
    )
    b.reconnect(a)
    a.reconnect(b)


def unmapped_fast_region(a: Player, b: Player, wr: SendWr) -> None:
    wr.rkey = b.pd.alloc_fast_reg_mr(4).rkey


def invalidated_fast_region(a: Player, b: Player, wr: SendWr) -> None:
    region = b.pd.alloc_fast_reg_mr(1)
    page = b.address & -4096
    b.qp.post_send(
        [
            SendWr(1, WrOpcode.REG_MR, mr=region, pages=[page], access=15, iova=page, length=4096),
            SendWr(2, WrOpcode.LOCAL_INV, invalidate_rkey=region.rkey),
        ]
    )
    b.expect(OK, OK)
    wr.rkey = region.rkey


def old_key_of_a_fast_region(a: Player, b: Player, wr: SendWr) -> None:
    region = b.pd.alloc_fast_reg_mr(1)
    wr.rkey = region.rkey
    key = region.next_key()
    request = SendWr(1, WrOpcode.REG_MR, mr=region, pages=[b.address], key=key, access=15)
    request.iova, request.length = b.address, 4096
    b.qp.post_send(request)
    b.expect(OK)


RESPONDER_ROWS = [
    Row("wrong key byte", wrong_key_byte, REMOTE),
    Row("unknown key", unknown_key, REMOTE),
    Row("key of the wrong generation", key_of_the_wrong_generation, REMOTE),
    Row("key of another domain", other_domain, REMOTE),
    Row("deregistered", deregistered, REMOTE),
    Row("before the start", before_the_start, REMOTE),
    Row("behind the end", behind_the_end, REMOTE),
    Row("wrapping around", wrapping_around, REMOTE),
    Row("no right", no_right, REMOTE),
    Row("the queue pair forbids it", queue_pair_forbids, INVALID),
    Row("fast region not registered", unmapped_fast_region, REMOTE),
    Row("fast region invalidated", invalidated_fast_region, REMOTE),
    Row("old key of a fast region", old_key_of_a_fast_region, REMOTE),
]


@pytest.fixture
def pair(contexts: tuple[Context, Context]) -> tuple[Player, Player]:
    """Two connected players; both memories hold the pattern, so that any change shows."""
    a, b = connected(*contexts)
    fill(a, b)
    return a, b


@pytest.mark.parametrize("opcode", ONE_SIDED, ids=lambda code: code.name)
@pytest.mark.parametrize("row", RESPONDER_ROWS, ids=lambda row: row.name)
def test_responder_refuses(pair: tuple[Player, Player], row: Row, opcode: WrOpcode) -> None:
    a, b = pair
    wr = request_for(opcode, a, b)
    row.spoil(a, b, wr)
    b.receive(9)
    b.view[:] = PATTERN[::-1]
    a.qp.post_send([wr, request_for(WrOpcode.RDMA_WRITE, a, b)])
    a.expect(row.status, FLUSH)
    b.expect(FLUSH)
    a.wait_state(QpState.ERR)
    b.wait_state(row.state)
    untouched(a, b)


@pytest.mark.parametrize("opcode", ATOMICS, ids=lambda code: code.name)
def test_unaligned_atomic(pair: tuple[Player, Player], opcode: WrOpcode) -> None:
    a, b = pair
    wr = request_for(opcode, a, b)
    wr.remote_addr += 4
    b.receive(9)
    a.qp.post_send(wr)
    a.expect(INVALID)
    b.expect(FLUSH)
    untouched(a, b)


def test_region_over_nothing(pair: tuple[Player, Player]) -> None:
    """A physical region may name memory that is not there: refused, like a bad key."""
    a, b = pair
    dma = b.pd.get_dma_mr(LOCAL | READ | WRITE)
    wr = request_for(WrOpcode.RDMA_WRITE, a, b)
    wr.rkey, wr.remote_addr = dma.rkey, 0xDEAD_0000_0000
    a.qp.post_send(wr)
    a.expect(REMOTE)
    untouched(a, b)


@pytest.mark.parametrize("opcode", [WrOpcode.SEND, WrOpcode.RDMA_READ], ids=lambda code: code.name)
@pytest.mark.parametrize("address", [EDGE, 0xDEAD_0000_0000], ids=["wrapping around", "nothing"])
def test_own_memory_that_is_not_there(
    pair: tuple[Player, Player], address: int, opcode: WrOpcode
) -> None:
    a, b = pair
    wr = request_for(opcode, a, b)
    wr.sg_list = [Sge(address, 8, a.pd.get_dma_mr().lkey)]
    b.receive(9)
    a.qp.post_send(wr)
    a.expect(WcStatus.LOC_PROT_ERR)
    b.silent(0)
    untouched(a, b)


def test_second_piece_is_bad(pair: tuple[Player, Player]) -> None:
    """All pieces are checked before the first byte moves."""
    a, b = pair
    wr = request_for(WrOpcode.RDMA_WRITE, a, b)
    wr.sg_list = [a.sge(0, 4096), a.sge(0, 8, a.mr.lkey ^ 1)]
    a.qp.post_send(wr)
    a.expect(WcStatus.LOC_PROT_ERR)
    untouched(a, b)


def test_end_of_the_region_is_bad(pair: tuple[Player, Player]) -> None:
    """One byte too many: nothing of the message is written, not even its good part."""
    a, b = pair
    short = b.pd.reg_mr(b.address, 8191, access=LOCAL | WRITE)
    wr = request_for(WrOpcode.RDMA_WRITE, a, b)
    wr.sg_list, wr.rkey = [a.sge(0, 8192)], short.rkey
    a.qp.post_send(wr)
    a.expect(REMOTE)
    untouched(a, b)


def test_send_with_invalidate_of_a_foreign_key(pair: tuple[Player, Player]) -> None:
    """A peer may invalidate fast regions of this domain only."""
    a, b = pair
    foreign = b.ctx.alloc_pd().alloc_fast_reg_mr(1)
    b.receive(1)
    a.send(WrOpcode.SEND_WITH_INV, [a.sge(0, 8)], invalidate_rkey=foreign.rkey)
    (wc,) = a.wait()
    assert wc.status is not OK
    a.wait_state(QpState.ERR)
    b.wait_state(QpState.ERR)
    untouched(a, b)


@pytest.mark.parametrize("what", ["ordinary region", "wrong key byte"])
def test_invalidate_what_must_not_be(pair: tuple[Player, Player], what: str) -> None:
    a, b = pair
    key = b.mr.rkey
    if what != "ordinary region":
        key = b.pd.alloc_fast_reg_mr(1).rkey
    if what == "wrong key byte":
        key ^= 1
    b.send(WrOpcode.LOCAL_INV, invalidate_rkey=key)
    (wc,) = b.wait()
    assert wc.status is not OK
    b.wait_state(QpState.ERR)
    if what == "ordinary region":
        untouched(a, b)
