"""Traffic between two HCAs, and inside one, without any VM."""

from __future__ import annotations

import pytest

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import (
    QpType,
    RecvWr,
    SendWr,
    Sge,
    VerbsError,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.wire.players import PATTERN, SIZE, Player, connected

Pair = tuple[Player, Player]
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
LENGTHS = (0, 1, 64, 1023, 1024, 1025, SIZE)


@pytest.fixture(params=["two HCAs", "loopback"])
def pair(request: pytest.FixtureRequest, contexts: tuple[Context, Context]) -> Pair:
    """Two connected RC players, on two HCAs or on one."""
    a, b = contexts
    return connected(a, b if request.param == "two HCAs" else a)


@pytest.mark.parametrize("length", LENGTHS)
def test_write(pair: Pair, length: int) -> None:
    a, b = pair
    a.view[:] = PATTERN
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, length)], b)
    (wc,) = a.expect(OK)
    assert (wc.wr_id, wc.opcode, wc.qp_num) == (77, WcOpcode.RDMA_WRITE, a.qp.qpn)
    assert bytes(b.view) == PATTERN[:length] + bytes(SIZE - length)
    b.silent(0)


@pytest.mark.parametrize("length", LENGTHS)
def test_read(pair: Pair, length: int) -> None:
    a, b = pair
    b.view[:] = PATTERN
    a.send(WrOpcode.RDMA_READ, [a.sge(0, length)], b)
    (wc,) = a.expect(OK)
    assert (wc.opcode, wc.byte_len) == (WcOpcode.RDMA_READ, length)
    assert bytes(a.view) == PATTERN[:length] + bytes(SIZE - length)


@pytest.mark.parametrize("length", LENGTHS)
def test_send(pair: Pair, length: int) -> None:
    a, b = pair
    a.view[:] = PATTERN
    b.receive(5)
    a.send(WrOpcode.SEND, [a.sge(0, length)])
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert (wc.wr_id, wc.opcode, wc.byte_len, wc.flags) == (5, WcOpcode.RECV, length, 0)
    assert bytes(b.view) == PATTERN[:length] + bytes(SIZE - length)


def test_immediates(pair: Pair) -> None:
    a, b = pair
    a.view[:] = PATTERN
    b.receive(1)
    b.receive(2)
    a.send(WrOpcode.SEND_WITH_IMM, [a.sge(0, 8)], imm=0x01020304)
    a.send(WrOpcode.RDMA_WRITE_WITH_IMM, [a.sge(0, 8)], b, 100, imm=0xFFFFFFFF)
    a.expect(OK, OK)
    first, second = b.expect(OK, OK)
    assert (first.opcode, first.imm, first.flags) == (WcOpcode.RECV, 0x01020304, WcFlags.WITH_IMM)
    assert (second.opcode, second.imm) == (WcOpcode.RECV_RDMA_WITH_IMM, 0xFFFFFFFF)
    assert (first.wr_id, second.wr_id, second.byte_len) == (1, 2, 8)
    assert bytes(b.view[:8]) == PATTERN[:8] == bytes(b.view[100:108])


def test_scatter_and_gather(pair: Pair) -> None:
    a, b = pair
    a.view[:] = PATTERN
    b.qp.post_recv(RecvWr(0, [b.sge(1000, 3), b.sge(0, 5), b.sge(5000, 4096)]))
    a.send(WrOpcode.SEND, [a.sge(1, 2), a.sge(4000, 200), a.sge(9, 1)])
    a.expect(OK)
    (wc,) = b.expect(OK)
    data = PATTERN[1:3] + PATTERN[4000:4200] + PATTERN[9:10]
    assert wc.byte_len == len(data)
    assert bytes(b.view[1000:1003]) == data[:3]
    assert bytes(b.view[:5]) == data[3:8]
    assert bytes(b.view[5000 : 5000 + len(data) - 8]) == data[8:]


@pytest.mark.parametrize("length", [0, 1, 12, 28, 44, 45, 60, 61, 108, 200, 512])
def test_inline(contexts: tuple[Context, Context], length: int) -> None:
    a, b = Player(contexts[0], inline=512), Player(contexts[1])
    a.connect(b)
    b.connect(a)
    b.receive()
    a.qp.post_send(
        [
            SendWr(1, WrOpcode.RDMA_WRITE, inline_data=PATTERN[:length],
                   remote_addr=b.address + 2048, rkey=b.mr.rkey),
            SendWr(2, WrOpcode.SEND, inline_data=PATTERN[:length]),
        ]
    )  # fmt: skip
    a.expect(OK, OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == length
    assert bytes(b.view[2048 : 2048 + length]) == PATTERN[:length] == bytes(b.view[:length])
    assert not any(b.view[2048 + length : 4096])


def test_atomics(pair: Pair) -> None:
    a, b = pair
    b.view[8:16] = (100).to_bytes(8, "little")

    def old() -> int:
        (wc,) = a.expect(OK)
        assert wc.byte_len == 8
        return int.from_bytes(a.view[:8], "little")

    def value() -> int:
        return int.from_bytes(b.view[8:16], "little")

    a.send(WrOpcode.ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b, 8, compare_add=7)
    assert (old(), value()) == (100, 107)
    a.send(WrOpcode.ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b, 8, compare_add=1, swap=2)
    assert (old(), value()) == (107, 107)
    a.send(WrOpcode.ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b, 8, compare_add=107, swap=1 << 63)
    assert (old(), value()) == (107, 1 << 63)
    a.send(WrOpcode.ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b, 8, compare_add=1 << 63)
    assert (old(), value()) == (1 << 63, 0)


def test_masked_atomics(pair: Pair) -> None:
    a, b = pair
    b.view[:8] = (0x1122).to_bytes(8, "little")
    a.send(
        WrOpcode.MASKED_ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b,
        compare_add=0x22, compare_add_mask=0xFF, swap=0xAA00, swap_mask=0xFF00,
    )  # fmt: skip
    (wc,) = a.expect(OK)
    assert wc.opcode is WcOpcode.MASKED_COMP_SWAP
    assert int.from_bytes(a.view[:8], "little") == 0x1122
    assert int.from_bytes(b.view[:8], "little") == 0xAA22
    # The mask's bits are the top bits of fields: the carry out of each is lost.
    a.send(
        WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b,
        compare_add=0x01DE, compare_add_mask=0x0080,
    )  # fmt: skip
    (wc,) = a.expect(OK)
    assert wc.opcode is WcOpcode.MASKED_FETCH_ADD
    assert int.from_bytes(b.view[:8], "little") == 0xAB00


def test_fast_registration(pair: Pair) -> None:
    a, b = pair
    a.view[:] = PATTERN
    region = b.pd.alloc_fast_reg_mr(4)
    stale = region.rkey
    key = region.next_key()
    pages = [b.address + 4096 * page for page in (3, 1, 2)]
    b.qp.post_send(
        SendWr(1, WrOpcode.REG_MR, mr=region, pages=pages, key=key, access=3,
               iova=0x5000_0010, length=10000)
    )  # fmt: skip
    (wc,) = b.expect(OK)
    assert wc.opcode is WcOpcode.REG_MR
    a.qp.post_send(
        SendWr(2, WrOpcode.RDMA_WRITE, [a.sge(0, 10000)], remote_addr=0x5000_0010, rkey=key)
    )
    a.expect(OK)
    assert bytes(b.view[3 * 4096 + 16 : 4 * 4096]) == PATTERN[:4080]
    assert bytes(b.view[4096 : 2 * 4096]) == PATTERN[4080:8176]
    assert bytes(b.view[2 * 4096 : 2 * 4096 + 1824]) == PATTERN[8176:10000]
    assert not any(b.view[:4096])
    # The peer invalidates it: the receive tells the key, and the key is worth nothing any more.
    b.receive(9, 8 * 4096, 64)
    a.send(WrOpcode.SEND_WITH_INV, [a.sge(0, 16)], invalidate_rkey=key)
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert (wc.imm, wc.flags, wc.opcode) == (key, WcFlags.WITH_INV, WcOpcode.RECV)
    # Register anew in one chain with the SEND that advertises it, then invalidate locally.
    a.receive(0, 0, 64)
    again = region.next_key()
    assert len({stale, key, again}) == 3
    b.qp.post_send(
        [
            SendWr(3, WrOpcode.REG_MR, mr=region, pages=pages[:1], key=again, access=5,
                   iova=pages[0], length=4096, send_flags=0),
            SendWr(4, WrOpcode.SEND, [b.sge(0, 16)]),
            SendWr(5, WrOpcode.LOCAL_INV, invalidate_rkey=again),
        ]
    )  # fmt: skip
    sent, invalidated = b.expect(OK, OK)
    assert (sent.wr_id, invalidated.wr_id) == (4, 5)
    assert invalidated.opcode is WcOpcode.LOCAL_INV
    a.expect(OK)
    a.qp.post_send(SendWr(6, WrOpcode.RDMA_READ, [a.sge(0, 8)], remote_addr=pages[0], rkey=again))
    a.expect(WcStatus.REM_ACCESS_ERR)


def test_uc(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts, QpType.UC)
    a.view[:] = PATTERN
    b.receive()
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 2000)], b)
    a.send(WrOpcode.SEND, [a.sge(0, 100)])
    a.send(WrOpcode.SEND, [a.sge(0, 100)])  # no receive: lost, and nobody is told
    a.expect(OK, OK, OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == 100
    assert bytes(b.view[:2000]) == PATTERN[:2000]
    b.silent(0)
    with pytest.raises(VerbsError, match="not possible on UC"):
        a.send(WrOpcode.RDMA_READ, [a.sge(0, 8)], b)


def test_large_message_over_scattered_pages(contexts: tuple[Context, Context]) -> None:
    """A region whose pages lie apart: one message crosses all of them."""
    a, b = connected(*contexts)
    a.view[:] = PATTERN
    pages = [b.address + 4096 * n for n in (7, 2, 9, 4)]
    iova, length = 0x77_0000_0064, 4 * 4096 - 100
    mr = b.pd.reg_mr(pages, length, iova=iova, access=7)
    a.qp.post_send(
        SendWr(1, WrOpcode.RDMA_WRITE, [a.sge(0, length)], remote_addr=iova, rkey=mr.rkey)
    )
    a.expect(OK)
    found = b"".join(bytes(b.view[n * 4096 : (n + 1) * 4096]) for n in (7, 2, 9, 4))
    assert found == bytes(100) + PATTERN[: 4 * 4096 - 100]


def test_reserved_key_and_dma_region(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts)
    a.view[:4] = b"data"
    dma = a.pd.get_dma_mr()
    keys = [dma.lkey]
    if a.ctx.local_dma_lkey is not None:
        keys.append(a.ctx.local_dma_lkey)
    for offset, key in enumerate(keys):
        a.send(WrOpcode.RDMA_WRITE, [Sge(a.address, 4, key)], b, 8 * offset)
        a.expect(OK)
        assert bytes(b.view[8 * offset : 8 * offset + 4]) == b"data"
