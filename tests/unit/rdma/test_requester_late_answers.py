"""Answers that come between batches, and what changes while an entry is held."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.commands import OptPar as Par
from bluebridge.device.layout.mlx4.contexts import QpState
from bluebridge.device.layout.net.roce import CNP_TRAFFIC_CLASS, BthOpcode, Syndrome
from bluebridge.device.packets.reader import read_packet
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.requester import Limits, Requester, Sending
from bluebridge.device.rdma.vocabulary import SEND
from bluebridge.device.rdma.work import SendWork
from tests.models.packet_pair import PacketPair
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote

BATCH = 16
PACKETS = 40
MTU = 1024


def _between_batches() -> Requester:
    """A requester of packets that has sent one batch of its packets again."""
    requester = Requester(Limits(mtu=MTU, window=64), 0)
    work = SendWork(0, SEND)
    work.length = PACKETS * MTU
    requester.post(work)
    while requester.next_unit():
        pass
    requester.expired()  # no answer has come
    requester.expired()  # the turn in which all goes out again
    for _ in range(BATCH):
        assert requester.next_unit()
    requester.pause()
    assert requester.state is Sending.LATER
    return requester


def test_a_receiver_that_is_not_ready_is_waited_for_between_batches() -> None:
    requester = _between_batches()
    requester.receive(0, 1, Syndrome.RNR_NAK | 1, brings=False)
    assert requester.state is Sending.NOT_READY and requester.rnr_retries == 1


def test_a_loss_between_batches_is_made_good_at_once() -> None:
    requester = _between_batches()
    requester.receive(3, 1, Syndrome.NAK_PSN, brings=False)
    assert requester.oldest == requester.due == 3


@pytest.mark.parametrize("between", [SendOpcode.NOP, None])
def test_reads_apart_are_not_counted_together(between: SendOpcode | None) -> None:
    """A local operation, as a fence, waits for the READ before it: one READ is under way."""
    pair = Pair().connect(rtr={"rra_max": 0}, rts={"sra_max": 4})
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    segments = remote(target, rkey) + data((key, local, 8))
    pair.post_send(SendOpcode.RDMA_READ, segments, ring=False)
    if between is not None:
        pair.post_send(between, b"", ring=False)
    pair.post_send(SendOpcode.RDMA_READ, segments, ring=False, fence=between is None)
    pair.a.doorbell(pair.qa.qpn)
    assert set(pair.sent()) == {0} and pair.a.state(pair.qa) == QpState.RTS


def test_limits_that_change_in_sqd_hold_for_an_entry_that_waits() -> None:
    pair = Pair().connect(rts={"retry_count": 7, "rnr_retry": 7}, rtr={"min_rnr_timer": 12})
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_READ, remote(target, rkey) + data((key, local, 8)))
    pair.post_send(SendOpcode.SEND, inline(b"x"), fence=True)
    pair.a.command(Opcode.RTS2SQD_QP, bytes(8 + 248), pair.qa.qpn | 1 << 31)
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert pair.a.state(pair.qa) == QpState.SQD and pair.sent() == [0]
    pair.a.modify(pair.qa, Opcode.SQD2RTS_QP, 1 << Par.RNR_RETRY, rnr_retry=1)
    pair.run(2.0)
    assert len(pair.a.host.facts(Fact.NOT_READY)) == 1 and pair.sent() != []


@pytest.mark.parametrize("report_first", [True, False])
def test_reports_and_requests_of_the_same_size_have_their_own_class(report_first: bool) -> None:
    pair = PacketPair()

    def report() -> None:
        pair.engine(pair.a).marked()
        pair.run(0.01)

    if report_first:
        report()
    pair.write(SendOpcode.RDMA_READ, 64)
    pair.run(0.1)
    if not report_first:
        report()
    classes = {packet.opcode: packet.traffic_class for packet in pair.packets}
    assert classes[BthOpcode.CNP] == CNP_TRAFFIC_CLASS
    assert classes[BthOpcode.RC_READ_REQUEST] != CNP_TRAFFIC_CLASS


def test_a_read_at_the_end_of_addresses_is_asked_for_again() -> None:
    """A peer that answers what nobody may read ends no timer of ours."""
    pair = PacketPair()
    asked: list[int] = []

    def watch(_source: object, message: Message) -> bool:
        assert isinstance(message, Frames)
        packet = read_packet(bytes(message.trains[0].frames[0]))
        asked.append(packet.psn)
        return False

    pair.watched.watch = watch
    segments = remote((1 << 64) - 1, 1) + data((pair.lkey, pair.source, 4096))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, segments)
    first, engine = asked[0], pair.engine(pair.a)
    answer = TransportPacket(BthOpcode.RC_READ_RESPONSE_FIRST, first, bytes(MTU))
    engine.receive_packet(answer)
    engine.receive_packet(TransportPacket(BthOpcode.RC_ACK, first + 1, syndrome=Syndrome.NAK_PSN))
    pair.run(0.1)
    assert first + 1 in asked
