"""The states of queue pairs: error, reset, and what is not allowed."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import QpState, SendFlags, VerbsError, WcOpcode, WrOpcode
from tests.models.verbs.contract.common import FLUSH, OK, Devices, OnDevices, Pair
from tests.models.verbs.player import Player, settle


class States(OnDevices):
    """The states of queue pairs: error, reset, and what is not allowed."""

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
