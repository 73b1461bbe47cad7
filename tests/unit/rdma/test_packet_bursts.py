"""Packets that arrive together: the responder does what it does with them one by one."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.vocabulary import PairState
from tests.models.packet_pair import STEP, PacketPair


@pytest.mark.parametrize("kind", ["WRITE", "SEND"])
def test_a_message_is_refused_at_the_packet_that_is_too_much(kind: str) -> None:
    """Packets that came together are refused no earlier than those that come one by one."""
    pair, size = PacketPair(), 1024
    pair.b.post_recv(pair.qb, [(pair.rkey, pair.target, 3 * size)])
    qp, peer = pair.a.adapter.qps.get(pair.qa.qpn), pair.b.adapter.qps.get(pair.qb.qpn)
    assert qp is not None and peer is not None
    psn, payloads = peer.responder.psn, [bytes((number,)) * size for number in range(1, 7)]
    first, middle = BthOpcode[f"RC_{kind}_FIRST"], BthOpcode[f"RC_{kind}_MIDDLE"]
    burst = [
        TransportPacket(
            first, psn, payloads[0], va=pair.target, rkey=pair.rkey, length=3 * size + 4
        ),
        TransportPacket(middle, psn + 1, payloads[1], more=payloads[2:]),
    ]
    pair.a.port.send_packets(
        [ConnectedPacket(qp.route, pair.qb.qpn, packet, qp.qpn) for packet in burst]
    )
    pair.run(STEP)
    (nak,) = [packet for packet in pair.packets if packet.opcode == BthOpcode.RC_ACK]
    assert (nak.psn, peer.state) == (psn + 3 & PSN_MASK, PairState.ERR)
    assert peer.traffic.rx_packets == 4
    assert pair.b.host.read(pair.target, 3 * size, What.PAYLOAD) == b"".join(payloads[:3])
