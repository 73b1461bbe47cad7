"""Refusals, states of queue pairs, events, and the device itself."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from bluebridge.guest.verbs import (
    CompletionQueue,
    QpState,
    RecvWr,
    SendFlags,
    SendWr,
    VerbsError,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.models.verbs.contract.common import (
    FLUSH,
    LOCAL,
    OK,
    READ,
    WRITE,
    Devices,
    OnDevices,
    Pair,
    join,
)
from tests.models.verbs.player import SIZE, Player, fill, settle, untouched


class Protection(OnDevices):
    """A refusal that is expected: the statuses of both sides, and that no byte moved."""

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

    @pytest.mark.parametrize(
        ("opcode", "wrong"),
        [
            *((WrOpcode.RDMA_READ, wrong) for wrong in ("key", "domain", "range", "right")),
            *((WrOpcode.SEND, wrong) for wrong in ("key", "domain", "range")),
        ],
    )
    def test_own_memory_is_protected(self, pair: Pair, opcode: WrOpcode, wrong: str) -> None:
        """Sending needs no right but to be in the region; a read writes into it."""
        a, b = pair
        piece = a.sge(0, 8)
        if wrong == "key":
            piece = a.sge(0, 8, a.mr.lkey ^ 1)
        elif wrong == "domain":
            piece = a.sge(0, 8, a.device.alloc_pd().reg_mr(a.address, SIZE).lkey)
        elif wrong == "range":
            piece = a.sge(SIZE - 4, 8)
        else:
            piece = a.sge(0, 8, a.pd.reg_mr(a.address, SIZE, None, READ).lkey)
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


class States(OnDevices):
    """The states of queue pairs: error, reset, and what is not allowed."""

    def test_error_flushes(self, pair: Pair) -> None:
        """Requests posted before and after the error are flushed, unsignalled ones too."""
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


class Events(OnDevices):
    """Completion channels: arming, solicited events, waiting threads."""

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


class TheDevice(OnDevices):
    """Tests of what the device says of itself, and of its end."""

    def test_what_the_device_says_of_itself(self, devices: Devices) -> None:
        a, b = devices
        attr = a.query_device()
        assert attr.name == a.name
        assert attr.local_inv and attr.fast_reg
        assert a.query_port().active
        assert (a.address == b.address) is (a is b)
        assert not a.health.lost
        a.health.check()
        assert a.port(1) is a
        with pytest.raises(VerbsError, match="has no port 3"):
            a.port(3)

    def test_closing_twice(self, devices: Devices) -> None:
        Player(devices[0])  # is closed with its device
        devices[0].close()
        devices[0].close()
