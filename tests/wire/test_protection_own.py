"""Protection on the queue pair's own side: its memory, its receives, its registrations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import AccessFlags, QpState, Sge, VerbsError, WcStatus, WrOpcode
from tests.wire.players import ONE_SIDED, SIZE, Player, connected, fill, request_for, untouched

LOCAL = AccessFlags.LOCAL_WRITE
WRITE = AccessFlags.REMOTE_WRITE
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
REMOTE, INVALID = WcStatus.REM_ACCESS_ERR, WcStatus.REM_INV_REQ_ERR
OPERATION, PROTECTION = WcStatus.REM_OP_ERR, WcStatus.LOC_PROT_ERR
BIND = WcStatus.MW_BIND_ERR
EDGE = (1 << 64) - 4


@pytest.fixture
def pair(contexts: tuple[Context, Context]) -> tuple[Player, Player]:
    """Two connected players; both memories hold the pattern, so that any change shows."""
    a, b = connected(*contexts)
    fill(a, b)
    return a, b


def own_wrong_key(a: Player) -> Sge:
    return a.sge(0, 8, a.mr.lkey ^ 1)


def own_other_domain(a: Player) -> Sge:
    return a.sge(0, 8, a.ctx.alloc_pd().reg_mr(a.address, SIZE).lkey)


def own_behind_the_end(a: Player) -> Sge:
    return a.sge(SIZE - 4, 8)


def own_wrapping_around(a: Player) -> Sge:
    return Sge(EDGE, 8, a.mr.lkey)


def own_deregistered(a: Player) -> Sge:
    piece = a.sge(0, 8)
    a.mr.close()
    return piece


def own_unmapped(a: Player) -> Sge:
    return Sge(0xDEAD_0000_0000, 8, a.pd.get_dma_mr().lkey)


OWN = [
    own_wrong_key,
    own_other_domain,
    own_behind_the_end,
    own_wrapping_around,
    own_deregistered,
    own_unmapped,
]


@pytest.mark.parametrize("opcode", [WrOpcode.SEND, *ONE_SIDED], ids=lambda code: code.name)
@pytest.mark.parametrize("piece", OWN, ids=lambda function: function.__name__)
def test_own_memory(
    pair: tuple[Player, Player], piece: Callable[[Player], Sge], opcode: WrOpcode
) -> None:
    """A bad lkey is the requester's own affair: its queue pair fails, the peer hears nothing."""
    a, b = pair
    wr = request_for(opcode, a, b)
    wr.sg_list = [piece(a)]
    b.receive(9)
    a.qp.post_send([wr, request_for(WrOpcode.RDMA_WRITE, a, b)])
    a.expect(PROTECTION, FLUSH)
    a.wait_state(QpState.ERR)
    assert b.qp.query_state() is QpState.RTS
    b.silent(0)
    untouched(a, b)


def test_read_into_a_region_without_local_write(pair: tuple[Player, Player]) -> None:
    a, b = pair
    readable = a.pd.reg_mr(a.address, SIZE, access=0)
    wr = request_for(WrOpcode.RDMA_READ, a, b)
    wr.sg_list = [a.sge(0, 8, readable.lkey)]
    a.qp.post_send(wr)
    a.expect(PROTECTION)
    untouched(a, b)


def test_second_piece_is_bad(pair: tuple[Player, Player]) -> None:
    """All pieces are checked before the first byte moves."""
    a, b = pair
    wr = request_for(WrOpcode.RDMA_WRITE, a, b)
    wr.sg_list = [a.sge(0, 4096), a.sge(0, 8, a.mr.lkey ^ 1)]
    a.qp.post_send(wr)
    a.expect(PROTECTION)
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


# -- sends and receives --------------------------------------------------------------------------


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


# -- fast registration ---------------------------------------------------------------------------


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


def test_driver_refuses_nonsense(contexts: tuple[Context, Context]) -> None:
    """What the driver can see itself never reaches the device."""
    pd = contexts[0].alloc_pd()
    with pytest.raises(VerbsError, match="needs local write"):
        pd.reg_mr(0x1000, 4096, access=WRITE)
    with pytest.raises(VerbsError, match="is not possible"):
        pd.reg_mr(0x1000, 0)
    with pytest.raises(VerbsError, match="differ in their page offset"):
        pd.reg_mr(0x1000, 4096, iova=0x2010)
    with pytest.raises(VerbsError, match="pages given"):
        pd.reg_mr([0x1000], 8192)
    with pytest.raises(VerbsError, match="multiple of"):
        pd.reg_mr([0x1000], 4096, page_shift=13)
    with pytest.raises(VerbsError, match="are possible"):
        pd.alloc_fast_reg_mr(512)
