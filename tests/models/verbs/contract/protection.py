"""What must be refused: the statuses of both sides, and that no byte moved."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import QpState, RecvWr, SendWr, VerbsError, WcStatus, WrOpcode
from tests.models.verbs.contract.common import (
    FLUSH,
    LOCAL,
    READ,
    WRITE,
    Devices,
    OnDevices,
    Pair,
    join,
)
from tests.models.verbs.player import SIZE, Player, fill, untouched


class Protection(OnDevices):
    """What must be refused: the statuses of both sides, and that no byte moved."""

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
