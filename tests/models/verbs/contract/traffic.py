"""Messages and memory: what arrives, and what fast registrations show."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import (
    QpState,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    VerbsError,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.models.verbs.contract.common import (
    LENGTHS,
    LOCAL,
    OK,
    READ,
    WRITE,
    Devices,
    OnDevices,
    Pair,
    join,
    registration,
)
from tests.models.verbs.player import PATTERN, Player


class Messages(OnDevices):
    """Sends, writes and reads, the order of completions, full queues."""

    @pytest.mark.parametrize("length", LENGTHS)
    def test_send(self, pair: Pair, length: int) -> None:
        a, b = pair
        b.receive(5)
        a.send(WrOpcode.SEND, [a.sge(0, length)])
        (sent,) = a.expect(OK)
        (wc,) = b.expect(OK)
        assert (sent.wr_id, sent.opcode, sent.qp_num) == (77, WcOpcode.SEND, a.qp.qpn)
        assert (wc.wr_id, wc.opcode, wc.qp_num) == (5, WcOpcode.RECV, b.qp.qpn)
        assert (wc.byte_len, wc.flags) == (length, 0)
        assert bytes(b.view[:length]) == PATTERN[:length]
        assert bytes(b.view[length:]) == PATTERN[::-1][length:]

    def test_immediates(self, pair: Pair) -> None:
        a, b = pair
        b.receive(1)
        b.receive(2)
        a.send(WrOpcode.SEND_WITH_IMM, [a.sge(0, 8)], imm=0x01020304)
        a.send(WrOpcode.RDMA_WRITE_WITH_IMM, [a.sge(0, 8)], b, 100, imm=0xFFFFFFFF)
        a.expect(OK, OK)
        first, second = b.expect(OK, OK)
        assert (first.opcode, first.imm) == (WcOpcode.RECV, 0x01020304)
        assert (second.opcode, second.imm) == (WcOpcode.RECV_RDMA_WITH_IMM, 0xFFFFFFFF)
        assert (first.flags, second.flags) == (WcFlags.WITH_IMM, WcFlags.WITH_IMM)
        assert (first.wr_id, second.wr_id, second.byte_len) == (1, 2, 8)
        assert bytes(b.view[:8]) == PATTERN[:8] == bytes(b.view[100:108])

    @pytest.mark.parametrize("length", LENGTHS)
    def test_write(self, pair: Pair, length: int) -> None:
        a, b = pair
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, length)], b)
        (wc,) = a.expect(OK)
        assert (wc.wr_id, wc.opcode) == (77, WcOpcode.RDMA_WRITE)
        assert bytes(b.view) == PATTERN[:length] + PATTERN[::-1][length:]
        b.silent(0)

    @pytest.mark.parametrize("length", LENGTHS)
    def test_read(self, pair: Pair, length: int) -> None:
        a, b = pair
        a.send(WrOpcode.RDMA_READ, [a.sge(0, length)], b)
        (wc,) = a.expect(OK)
        assert (wc.opcode, wc.byte_len) == (WcOpcode.RDMA_READ, length)
        assert bytes(a.view) == PATTERN[::-1][:length] + PATTERN[length:]

    def test_scatter_and_gather(self, pair: Pair) -> None:
        a, b = pair
        b.qp.post_recv(RecvWr(0, [b.sge(1000, 3), b.sge(0, 5), b.sge(5000, 4096)]))
        a.send(WrOpcode.SEND, [a.sge(1, 2), a.sge(4000, 200), a.sge(9, 1)])
        a.expect(OK)
        (wc,) = b.expect(OK)
        data = PATTERN[1:3] + PATTERN[4000:4200] + PATTERN[9:10]
        assert wc.byte_len == len(data)
        assert bytes(b.view[1000:1003]) + bytes(b.view[:5]) == data[:8]
        assert bytes(b.view[5000 : 5000 + len(data) - 8]) == data[8:]

    def test_inline_data_may_change_after_the_post(self, pair: Pair) -> None:
        a, b = pair
        data = bytearray(b"inline data")
        b.receive()
        a.qp.post_send(SendWr(1, WrOpcode.SEND, inline_data=data))
        data[:] = bytes(len(data))
        a.expect(OK)
        b.expect(OK)
        assert bytes(b.view[:11]) == b"inline data"

    def test_requests_end_in_order(self, pair: Pair) -> None:
        a, b = pair
        for turn in range(10):
            for n in range(8):
                b.receive(n, 64 * n, 64)
            a.qp.post_send([SendWr(n, WrOpcode.SEND, [a.sge(turn, n)]) for n in range(8)])
            assert [wc.wr_id for wc in a.expect(*[OK] * 8)] == list(range(8))
            done = b.expect(*[OK] * 8)
            assert [(wc.wr_id, wc.byte_len) for wc in done] == [(n, n) for n in range(8)]

    def test_unsignalled_requests(self, pair: Pair) -> None:
        """One completion for every fourth request gives back those before it."""
        a, b = pair
        for turn in range(40):
            flags = SendFlags.SIGNALED if turn % 4 == 3 else SendFlags(0)
            a.send(WrOpcode.RDMA_WRITE, [a.sge(turn, 1)], b, turn, flags)
            if flags:
                a.expect(OK)
        a.silent(0)
        assert bytes(b.view[:40]) == PATTERN[:40]

    def test_full_queues(self, pair: Pair) -> None:
        a, b = pair
        piece = [a.sge(0, 1)]
        write = SendWr(1, WrOpcode.RDMA_WRITE, piece, remote_addr=b.address, rkey=b.mr.rkey)
        with pytest.raises(VerbsError, match="send queue of 16 entries is full"):
            a.qp.post_send([write] * 17)
        a.expect(*[OK] * 16)
        with pytest.raises(VerbsError, match="receive queue of 16 entries is full"):
            b.qp.post_recv([RecvWr(n) for n in range(17)])
        with pytest.raises(VerbsError, match="pieces do not fit"):
            a.send(WrOpcode.SEND, piece * 64)
        with pytest.raises(VerbsError, match="inline bytes do not fit"):
            a.qp.post_send(SendWr(1, WrOpcode.SEND, inline_data=bytes(1000)))

    def test_shared_receive_queue(self, devices: Devices) -> None:
        a, b = join(Player(devices[0]), Player(devices[1], srq=True))
        assert b.srq is not None
        for turn in range(4):
            for n in range(8):
                b.receive(n, 64 * n, 64)
            a.qp.post_send([SendWr(n, WrOpcode.SEND, [a.sge(0, 4 + n)]) for n in range(8)])
            a.expect(*[OK] * 8)
            done = b.expect(*[OK] * 8)
            assert [(wc.wr_id, wc.byte_len) for wc in done] == [(n, 4 + n) for n in range(8)], turn
        with pytest.raises(VerbsError, match="full"):
            b.srq.post_recv([RecvWr(n) for n in range(32)])

    def test_a_send_waits_for_a_receive(self, pair: Pair) -> None:
        a, b = pair
        a.send(WrOpcode.SEND, [a.sge(0, 64)])
        a.silent()
        b.receive()
        a.expect(OK)
        b.expect(OK)


class Memory(OnDevices):
    """Memory regions of all kinds, and fast registration."""

    def test_region_over_scattered_pages(self, pair: Pair) -> None:
        a, b = pair
        iova, length = 0x77_0000_0064, 4 * 4096 - 100
        places = (7, 2, 9, 4)
        mr = b.pd.reg_mr([b.address + 4096 * n for n in places], length, iova, LOCAL | WRITE)
        request = SendWr(1, WrOpcode.RDMA_WRITE, [a.sge(0, length)], rkey=mr.rkey)
        request.remote_addr = iova
        a.qp.post_send(request)
        a.expect(OK)
        found = b"".join(bytes(b.view[n * 4096 : (n + 1) * 4096]) for n in places)
        assert found[100:] == PATTERN[:length]

    def test_regions_over_all_memory(self, pair: Pair) -> None:
        a, b = pair
        keys = [a.pd.get_dma_mr().lkey]
        if a.device.local_dma_lkey is not None:
            keys.append(a.device.local_dma_lkey)
        for offset, key in enumerate(keys):
            a.send(WrOpcode.RDMA_WRITE, [Sge(a.address, 4, key)], b, 8 * offset)
            a.expect(OK)
            assert bytes(b.view[8 * offset : 8 * offset + 4]) == PATTERN[:4]

    def test_fast_registration(self, pair: Pair) -> None:
        a, b = pair
        region = b.pd.alloc_fast_reg_mr(4)
        assert region.max_pages == 4
        key = region.next_key()
        pages = [b.address + 4096 * page for page in (3, 1, 2)]
        request = SendWr(1, WrOpcode.REG_MR, mr=region, pages=pages, key=key, access=LOCAL | WRITE)
        request.iova, request.length = 0x5000_0010, 10000
        b.qp.post_send(request)
        (wc,) = b.expect(OK)
        assert wc.opcode is WcOpcode.REG_MR
        write = SendWr(2, WrOpcode.RDMA_WRITE, [a.sge(0, 10000)], rkey=key)
        write.remote_addr = 0x5000_0010
        a.qp.post_send(write)
        a.expect(OK)
        assert bytes(b.view[3 * 4096 + 16 : 4 * 4096]) == PATTERN[:4080]
        assert bytes(b.view[4096 : 2 * 4096]) == PATTERN[4080:8176]
        assert bytes(b.view[2 * 4096 : 2 * 4096 + 1824]) == PATTERN[8176:10000]
        assert bytes(b.view[:4096]) == PATTERN[::-1][:4096]

    def test_a_registration_that_names_no_key_keeps_the_present_one(self, pair: Pair) -> None:
        a, b = pair
        region = b.pd.alloc_fast_reg_mr(1)
        key = region.next_key()
        b.qp.post_send(registration(region, b.address, 0))
        b.expect(OK)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b, rkey=key)
        a.expect(OK)

    def test_the_peer_invalidates(self, pair: Pair) -> None:
        a, b = pair
        region = b.pd.alloc_fast_reg_mr(1)
        key = region.next_key()
        b.qp.post_send(registration(region, b.address, key))
        b.expect(OK)
        b.receive(9, 4096, 64)
        a.send(WrOpcode.SEND_WITH_INV, [a.sge(0, 16)], invalidate_rkey=key)
        a.expect(OK)
        (wc,) = b.expect(OK)
        assert (wc.imm, wc.flags, wc.opcode) == (key, WcFlags.WITH_INV, WcOpcode.RECV)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b, rkey=key)
        a.expect(WcStatus.REM_ACCESS_ERR)

    def test_register_advertise_and_invalidate_in_one_chain(self, pair: Pair) -> None:
        a, b = pair
        region = b.pd.alloc_fast_reg_mr(1)
        key = region.next_key()
        a.receive(0, 0, 64)
        register = registration(region, b.address, key, READ)
        register.send_flags = 0
        invalidate = SendWr(5, WrOpcode.LOCAL_INV, invalidate_rkey=key)
        b.qp.post_send([register, SendWr(4, WrOpcode.SEND, [b.sge(0, 16)]), invalidate])
        sent, invalidated = b.expect(OK, OK)
        assert (sent.wr_id, invalidated.wr_id) == (4, 5)
        assert invalidated.opcode is WcOpcode.LOCAL_INV
        a.expect(OK)
        a.send(WrOpcode.RDMA_READ, [a.sge(0, 8)], b, rkey=key)
        a.expect(WcStatus.REM_ACCESS_ERR)

    def test_the_old_key_is_good_until_the_next_registration(self, pair: Pair) -> None:
        """Invalidated and registered anew in one chain, which is made before any of it runs."""
        a, b = pair
        region = b.pd.alloc_fast_reg_mr(1)
        old = region.next_key()
        b.qp.post_send(registration(region, b.address, old))
        b.expect(OK)
        new = region.next_key()
        assert new != old
        invalidate = SendWr(5, WrOpcode.LOCAL_INV, invalidate_rkey=old)
        b.qp.post_send([invalidate, registration(region, b.address, new)])
        b.expect(OK, OK)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b, rkey=new)
        a.expect(OK)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b, rkey=old)
        a.expect(WcStatus.REM_ACCESS_ERR)

    @pytest.mark.parametrize("what", ["twice", "another domain", "too many pages", "ordinary"])
    def test_registrations_that_must_not_be(self, pair: Pair, what: str) -> None:
        _, b = pair
        pd = b.device.alloc_pd() if what == "another domain" else b.pd
        region = pd.alloc_fast_reg_mr(1)
        request = registration(region, b.address, region.rkey)
        if what == "too many pages":
            request.length = 3 * 4096  # a list's block holds two entries on a ConnectX-5
        if what == "ordinary":
            request = SendWr(1, WrOpcode.LOCAL_INV, invalidate_rkey=b.mr.rkey)
        b.qp.post_send([request, request] if what == "twice" else request)
        if what == "twice":
            b.expect(OK)
        (wc,) = b.wait()
        assert wc.status is WcStatus.MW_BIND_ERR
        b.wait_state(QpState.ERR)
