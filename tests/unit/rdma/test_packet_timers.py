"""Acknowledge time-outs over packets: how long they last, and what they do not count."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.roce import BthOpcode, ack_timeout_us
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.packet_receiver import BURST, MOST_HELD, PacketReceiver
from bluebridge.device.rdma.connected.packet_sender import stretched
from bluebridge.device.rdma.connected.packet_wire import MOST_WAITING
from bluebridge.device.rdma.connected.responder import PACKET_COST
from bluebridge.device.rdma.ports.counters import Trouble
from tests.models.packet_pair import SIZE, STEP, PacketPair
from tests.models.rdma_node import SendOpcode

CODE, RETRIES = 14, 2
"""Of `Node.to_rts`."""


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_a_packet_in_an_inbox_is_late_and_not_lost(opcode: SendOpcode) -> None:
    """The loop does not come to B's port for ten time-outs: nothing is sent again, none counted."""
    pair = PacketPair()
    pair.post_send(opcode, pair.segments(SIZE))
    pair.a.host.run(1.0)
    sent = len(pair.packets)
    pair.a.host.run(1.0)
    assert len(pair.packets) == sent > 0
    pair.run(0.05)
    assert pair.sent() == [0]
    assert Trouble.TIMED_OUT not in pair.a.port.diagnostics.counts
    assert Trouble.DUPLICATE_CAME not in pair.b.port.diagnostics.counts


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_retries_are_used_up_after_as_many_time_outs(factor: float) -> None:
    pair = PacketPair(factor)
    pair.rule("drop direction=out")
    pair.post_send(SendOpcode.RDMA_WRITE, pair.segments(8))
    while not (found := pair.sent()):
        pair.run(STEP)
    assert found == [CompletionStatus.TRANSPORT_RETRY_EXC_ERR]
    expected = (RETRIES + 1) * factor * ack_timeout_us(CODE) / 1e6
    assert pair.a.host.now == pytest.approx(expected, abs=0.02)
    told = pair.a.host.facts(Fact.NO_ANSWER)
    assert [(each["retry"], each["most"]) for each in told] == [(1, 2), (2, 2)]
    assert [each["most"] for each in pair.a.host.facts(Fact.RETRIES_USED_UP)] == [2]
    assert pair.a.port.diagnostics.counts[Trouble.TIMED_OUT] == RETRIES + 1


def test_a_long_time_out_is_what_its_code_says() -> None:
    assert [stretched(4.0, code) for code in (0, 14, 15, 16, 17, 31)] == [
        1.0, 4.0, pytest.approx(3.7, abs=0.1), pytest.approx(1.9, abs=0.1), 1.0, 1.0,
    ]  # fmt: skip


def test_what_an_inbox_has_no_room_for_is_in_the_log() -> None:
    pair = PacketPair()
    qp = pair.a.adapter.qps.get(pair.qa.qpn)
    assert qp is not None
    count = MOST_WAITING // 1024 + 100
    for psn in range(count):
        packet = TransportPacket(BthOpcode.RC_WRITE_MIDDLE, psn, bytes(1024))
        pair.a.port.send_packets([ConnectedPacket(qp.route, pair.qb.qpn, packet, qp.qpn)])
    assert pair.wires[1].overrun > 100
    told = pair.b.host.facts(Fact.PACKET_LOST)
    assert told[0]["port"] == 1 and 99 <= len(told) < pair.wires[1].overrun


def test_requests_behind_a_read_take_bounded_room() -> None:
    """Also while some of them wait for their turn and the READ is answered already."""
    pair = PacketPair()
    qp = pair.b.adapter.qps.get(pair.qb.qpn)
    assert qp is not None
    receiver, mtu = qp.responder, qp.mtu
    assert isinstance(receiver, PacketReceiver)

    def come(count: int) -> None:
        for _ in range(count):
            receiver.receive_packet(
                TransportPacket(
                    BthOpcode.RC_FETCH_ADD, receiver.psn, va=pair.target, rkey=pair.rkey
                )
            )

    receiver.receive_packet(
        TransportPacket(
            BthOpcode.RC_READ_REQUEST, receiver.psn, va=pair.target, rkey=pair.rkey,
            length=(BURST + 1) * mtu,
        )
    )  # fmt: skip
    come(2 * MOST_HELD // PACKET_COST)
    assert pair.wires[1].held == MOST_HELD
    pair.b.host.turn()
    come(2 * MOST_HELD // PACKET_COST)
    assert MOST_HELD - 2 * BURST * PACKET_COST < pair.wires[1].held <= MOST_HELD
    pair.b.host.run()
    assert pair.wires[1].held == 0


def test_queue_pairs_that_answer_slowly_leave_room_for_others() -> None:
    """Each holds as many requests behind a READ as one may."""
    pair = PacketPair()
    wire = pair.wires[1]
    for number in range(2 * MOST_WAITING // MOST_HELD):
        qp = pair.b.adapter.qps.get(pair.connected(0x300 + number, mtu=5).qpn)
        assert qp is not None and isinstance(qp.responder, PacketReceiver)
        read = TransportPacket(
            BthOpcode.RC_READ_REQUEST, qp.responder.psn, va=pair.target, rkey=pair.rkey,
            length=(BURST + 1) * qp.mtu,
        )  # fmt: skip
        qp.responder.receive_packet(read)
        for _ in range(MOST_HELD // qp.mtu):
            write = TransportPacket(BthOpcode.RC_WRITE_MIDDLE, qp.responder.psn, bytes(qp.mtu))
            qp.responder.receive_packet(write)
        room = qp.mtu + PACKET_COST
    assert MOST_WAITING // 2 - room < wire.held <= MOST_WAITING // 2
    lost = wire.overrun
    pair.post_send(SendOpcode.RDMA_WRITE, pair.segments(SIZE))
    pair.run(0.1)
    assert pair.sent() == [0]
    assert wire.overrun == lost


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_long_messages_of_many_queue_pairs_fit_into_an_inbox(opcode: SendOpcode) -> None:
    """Nobody takes the packets for a while, which are of the largest path MTU."""
    pair = PacketPair()
    pairs = [pair.connected(0x300 + number, mtu=5) for number in range(40)]
    for qa in pairs:
        pair.a.post_send(qa, opcode, pair.segments(SIZE))
    for _ in range(100):
        pair.b.host.run(STEP)
    assert [wire.overrun for wire in pair.wires] == [0, 0]
    pair.run(0.1)
    assert [pair.a.statuses(qa) for qa in pairs] == [[0]] * len(pairs)
    counts = pair.a.port.diagnostics.counts
    assert not {Trouble.TIMED_OUT, Trouble.SEQUENCE_NAK_CAME} & counts.keys()
