"""Memory regions of all kinds, and fast registration."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import QpState, SendWr, Sge, WcFlags, WcOpcode, WcStatus, WrOpcode
from tests.models.verbs.contract.common import LOCAL, OK, READ, WRITE, OnDevices, Pair, registration
from tests.models.verbs.player import PATTERN


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
            request.length = 2 * 4096
        if what == "ordinary":
            request = SendWr(1, WrOpcode.LOCAL_INV, invalidate_rkey=b.mr.rkey)
        b.qp.post_send([request, request] if what == "twice" else request)
        if what == "twice":
            b.expect(OK)
        (wc,) = b.wait()
        assert wc.status is WcStatus.MW_BIND_ERR
        b.wait_state(QpState.ERR)
