"""What every provider of verbs does alike: tests of `guest.verbs.interface`, by a fixture.

A provider's test module subclasses `VerbsContract` and gives the fixture `devices`.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionQueue,
    Device,
    FastRegistration,
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
from tests.verbs.player import PATTERN, SIZE, Player, fill, settle, untouched

Devices = tuple[Device, Device]
Pair = tuple[Player, Player]
LOCAL, WRITE, READ = AccessFlags.LOCAL_WRITE, AccessFlags.REMOTE_WRITE, AccessFlags.REMOTE_READ
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
LENGTHS = (0, 1, 1025, SIZE)


def join(a: Player, b: Player, **rts: int) -> Pair:
    """Connect two players; `rts` belongs to the first."""
    a.connect(b, **rts)
    b.connect(a)
    return a, b


def registration(
    region: FastRegistration, address: int, key: int, access: AccessFlags = LOCAL | WRITE
) -> SendWr:
    """REG_MR of one page."""
    request = SendWr(1, WrOpcode.REG_MR, mr=region, pages=[address], key=key, access=access)
    request.iova, request.length = address, 4096
    return request


class VerbsContract:
    """The tests. Both sides have `SIZE` bytes of memory, `a` sends and `b` answers."""

    @pytest.fixture
    def pair(self, devices: Devices) -> Pair:
        """Two connected players with different bytes in their memories."""
        a, b = join(Player(devices[0], inline=200), Player(devices[1], inline=200))
        fill(a, b)
        return a, b

    # -- messages -------------------------------------------------------------------------------

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

    # -- memory ---------------------------------------------------------------------------------

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
        assert [wc.wr_id for wc in b.expect(OK, OK)] == [4, 5]
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
        assert wc.status not in (OK, FLUSH)
        b.wait_state(QpState.ERR)

    # -- protection -----------------------------------------------------------------------------

    @pytest.mark.parametrize("opcode", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
    @pytest.mark.parametrize(
        "wrong", ["key", "generation", "domain", "closed", "before", "behind", "right", "stale"]
    )
    def test_the_responder_refuses(self, pair: Pair, wrong: str, opcode: WrOpcode) -> None:
        a, b = pair
        request = SendWr(1, opcode, [a.sge(256, 8)], remote_addr=b.address, rkey=b.mr.rkey)
        if wrong == "key":
            request.rkey ^= 1
        elif wrong == "generation":
            request.rkey ^= 0x00300000
        elif wrong == "domain":
            request.rkey = b.device.alloc_pd().reg_mr(b.address, SIZE, None, b.access).rkey
        elif wrong == "closed":
            b.mr.close()
        elif wrong == "before":
            request.remote_addr -= 8
        elif wrong == "behind":
            request.remote_addr += SIZE - 4
        elif wrong == "right":
            granted = LOCAL | (WRITE if opcode is WrOpcode.RDMA_READ else READ)
            request.rkey = b.pd.reg_mr(b.address, SIZE, None, granted).rkey
        else:
            request.rkey = b.pd.alloc_fast_reg_mr(1).rkey
        self.refused(a, b, request, WcStatus.REM_ACCESS_ERR)

    @pytest.mark.parametrize("opcode", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
    def test_the_queue_pair_forbids(self, pair: Pair, opcode: WrOpcode) -> None:
        a, b = pair
        b.access = WRITE if opcode is WrOpcode.RDMA_READ else READ
        b.reconnect(a)
        a.reconnect(b)
        request = SendWr(1, opcode, [a.sge(256, 8)], remote_addr=b.address, rkey=b.mr.rkey)
        self.refused(a, b, request, WcStatus.REM_INV_REQ_ERR)

    def refused(self, a: Player, b: Player, request: SendWr, status: WcStatus) -> None:
        """The request ends with `status`, all others are flushed, and no byte has moved."""
        b.receive(9)
        a.qp.post_send([request, SendWr(2, WrOpcode.SEND, [a.sge(0, 8)])])
        a.expect(status, FLUSH)
        b.expect(FLUSH)
        a.wait_state(QpState.ERR)
        b.wait_state(QpState.ERR)
        untouched(a, b)

    @pytest.mark.parametrize("wrong", ["key", "domain", "range", "right"])
    @pytest.mark.parametrize("opcode", [WrOpcode.RDMA_READ, WrOpcode.SEND])
    def test_own_memory_is_protected(self, pair: Pair, opcode: WrOpcode, wrong: str) -> None:
        a, b = pair
        piece = a.sge(0, 8)
        if wrong == "key":
            piece = a.sge(0, 8, a.mr.lkey ^ 1)
        elif wrong == "domain":
            piece = a.sge(0, 8, a.device.alloc_pd().reg_mr(a.address, SIZE).lkey)
        elif wrong == "range":
            piece = a.sge(SIZE - 4, 8)
        elif opcode is WrOpcode.RDMA_READ:
            piece = a.sge(0, 8, a.pd.reg_mr(a.address, SIZE, None, READ).lkey)
        else:
            return  # sending needs no right
        b.receive(1)
        a.send(opcode, [piece], b)
        a.expect(WcStatus.LOC_PROT_ERR)
        a.wait_state(QpState.ERR)
        untouched(a, b)

    def test_message_longer_than_the_receive(self, pair: Pair) -> None:
        a, b = pair
        b.receive(1, 0, 100)
        b.receive(2)
        a.send(WrOpcode.SEND, [a.sge(0, 101)])
        a.expect(WcStatus.REM_INV_REQ_ERR)
        first, second = b.expect(WcStatus.LOC_LEN_ERR, FLUSH)
        assert (first.wr_id, second.wr_id) == (1, 2)
        untouched(a, b)

    @pytest.mark.parametrize("wrong", ["key", "domain", "right"])
    def test_receive_into_bad_memory(self, pair: Pair, wrong: str) -> None:
        a, b = pair
        keys = {
            "key": b.mr.lkey ^ 1,
            "domain": b.device.alloc_pd().reg_mr(b.address, SIZE).lkey,
            "right": b.pd.reg_mr(b.address, SIZE, access=0).lkey,
        }
        b.qp.post_recv(RecvWr(1, [b.sge(0, 100, keys[wrong])]))
        a.send(WrOpcode.SEND, [a.sge(0, 50)])
        a.expect(WcStatus.REM_OP_ERR)
        b.expect(WcStatus.LOC_PROT_ERR)
        b.wait_state(QpState.ERR)
        untouched(a, b)

    def test_no_receive(self, devices: Devices) -> None:
        """The requester's retries are all it costs, the responder lives."""
        a, b = join(Player(devices[0]), Player(devices[1]), rnr_retry=1)
        fill(a, b)
        a.send(WrOpcode.RDMA_WRITE_WITH_IMM, [a.sge(0, 8)], b, imm=1)
        a.expect(WcStatus.RNR_RETRY_EXC_ERR)
        assert b.qp.query_state() is QpState.RTS
        untouched(a, b)

    def test_no_peer(self, devices: Devices) -> None:
        a, b = join(Player(devices[0]), Player(devices[1]), timeout=8, retry_count=1)
        b.qp.destroy()
        a.send(WrOpcode.SEND, [a.sge(0, 8)])
        a.expect(WcStatus.RETRY_EXC_ERR)

    def test_numbers_that_fit_no_region(self, devices: Devices) -> None:
        pd = devices[0].alloc_pd()
        address = devices[0].allocate(8192, 8192).address
        with pytest.raises(VerbsError, match="needs local write"):
            pd.reg_mr(address, 4096, access=WRITE)
        with pytest.raises(VerbsError, match="is not possible"):
            pd.reg_mr([address], 0)
        with pytest.raises(VerbsError, match="differ in their page offset"):
            pd.reg_mr(address, 4096, iova=address + 0x10)
        with pytest.raises(VerbsError, match="pages given"):
            pd.reg_mr([address], 8192)
        with pytest.raises(VerbsError, match="are possible"):
            pd.alloc_fast_reg_mr(512)

    # -- states ---------------------------------------------------------------------------------

    def test_error_flushes(self, pair: Pair) -> None:
        """What is posted, and what is posted afterwards, unsignalled requests too."""
        a, b = pair
        for n in range(3):
            b.receive(n)
        b.qp.modify_err()
        assert [wc.wr_id for wc in b.expect(FLUSH, FLUSH, FLUSH)] == [0, 1, 2]
        b.receive(8)
        (wc,) = b.expect(FLUSH)
        assert (wc.wr_id, wc.opcode) == (8, WcOpcode.RECV)
        b.send(WrOpcode.RDMA_WRITE, [b.sge(0, 1)], a, flags=SendFlags(0))
        (wc,) = b.expect(FLUSH)
        assert (wc.wr_id, wc.opcode) == (77, WcOpcode.SEND)
        assert b.qp.query_state() is QpState.ERR

    def test_reset_forgets(self, pair: Pair) -> None:
        """Unread completions are gone, and the pair connects anew."""
        a, b = pair
        b.receive(1)
        a.send(WrOpcode.SEND, [a.sge(0, 4)])
        settle(a)
        a.reconnect(b)
        b.reconnect(a)
        assert a.cq.poll() == b.cq.poll() == []
        b.receive(2)
        a.send(WrOpcode.SEND, [a.sge(0, 4)])
        a.expect(OK)
        (wc,) = b.expect(OK)
        assert wc.wr_id == 2

    def test_states_follow_one_another(self, devices: Devices) -> None:
        qp = Player(devices[0]).qp
        with pytest.raises(VerbsError, match="cannot go from RESET to RTS"):
            qp.modify_rts()
        with pytest.raises(VerbsError, match="cannot go from RESET to ERR"):
            qp.modify_err()
        qp.modify_init()
        with pytest.raises(VerbsError, match="RTR needs an address vector"):
            qp.modify_rtr()
        assert (qp.state, qp.query_state()) == (QpState.INIT, QpState.INIT)
        qp.destroy()
        qp.destroy()

    def test_an_address_that_is_none(self, devices: Devices) -> None:
        with pytest.raises(VerbsError, match="is not the address of"):
            devices[0].address_vector(b"elsewhere")

    # -- events ---------------------------------------------------------------------------------

    def test_one_event_for_each_arming(self, pair: Pair) -> None:
        a, b = pair
        for _ in range(12):
            b.cq.req_notify()
            b.receive()
            assert b.channel.get_event(0) is None
            a.send(WrOpcode.SEND, [a.sge(0, 1)])
            assert b.channel.get_event(2) is b.cq
            assert b.channel.get_event(0) is None
            b.expect(OK)
            a.expect(OK)

    def test_waiting_completions_tell_at_once(self, pair: Pair) -> None:
        a, b = pair
        b.receive()
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        a.expect(OK)
        assert b.channel.get_event(0.02) is None
        b.cq.req_notify()
        assert b.channel.get_event(2) is b.cq

    def test_solicited_only(self, pair: Pair) -> None:
        a, b = pair
        for _ in range(3):
            b.receive()
        b.cq.req_notify(solicited_only=True)
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        a.expect(OK)
        assert b.channel.get_event(0.02) is None
        a.send(WrOpcode.SEND, [a.sge(0, 1)], flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
        a.expect(OK)
        assert b.channel.get_event(2) is b.cq
        b.expect(OK, OK)
        b.cq.req_notify(solicited_only=True)
        b.qp.modify_err()  # a failed completion counts as solicited
        assert b.channel.get_event(2) is b.cq

    def test_the_descriptor_is_readable_while_there_are_events(self, pair: Pair) -> None:
        a, b = pair
        assert not select.select([b.channel.fileno()], [], [], 0)[0]
        b.cq.req_notify()
        b.receive()
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        assert select.select([b.channel.fileno()], [], [], 2)[0]
        assert b.channel.get_event(0) is b.cq
        assert b.channel.get_event(0) is None
        assert not select.select([b.channel.fileno()], [], [], 0)[0]

    def test_a_waiting_thread_wakes(self, pair: Pair) -> None:
        """By a completion, by `wake`, and by `close`."""
        a, b = pair
        b.receive()
        b.cq.req_notify()
        woken: list[CompletionQueue | None] = []
        complete = partial(a.send, WrOpcode.SEND, [a.sge(0, 1)])
        ends: tuple[Callable[[], None], ...] = (complete, b.channel.wake, b.channel.close)
        for end in ends:
            thread = threading.Thread(target=lambda: woken.append(b.channel.get_event(5)))
            thread.start()
            time.sleep(0.01)
            end()
            thread.join(5)
            assert not thread.is_alive()
        assert woken == [b.cq, None, None]

    def test_a_queue_without_a_channel(self, devices: Devices) -> None:
        cq = devices[0].create_cq(4)
        assert cq.channel is None
        with pytest.raises(VerbsError, match="no completion channel"):
            cq.req_notify()
        assert cq.poll() == []

    # -- the device -----------------------------------------------------------------------------

    def test_what_the_device_says_of_itself(self, devices: Devices) -> None:
        a, b = devices
        attr = a.query_device()
        assert attr.name == a.name
        assert attr.local_inv and attr.fast_reg
        assert a.query_port().active
        assert a.address != b.address
        assert not a.health.lost
        a.health.check()

    def test_closing_twice(self, devices: Devices) -> None:
        Player(devices[0])  # is closed with its device
        devices[0].close()
        devices[0].close()
