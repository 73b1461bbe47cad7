"""Answers packet by packet: requests off a wire of packets, the data of reads a burst at a time."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Part, Request, Route
from bluebridge.device.fabric.sizes import size_of_packet
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode, Op
from bluebridge.device.packets.segmentation import opcode_of, read_response_of
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.receiver import ConnectedReceiver
from bluebridge.device.rdma.connected.requester import packets_of
from bluebridge.device.rdma.connected.responder import (
    Answer,
    Nak,
    NotPresent,
    RemoteSide,
    Responder,
    cost,
)
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import RECEIVING

BURST: Final = 32
"""Most packets of answers that are made in one turn of the loop."""
CROWDED_SECONDS: Final = 0.001
"""Seconds until data of a read are offered again to a port for which much waits."""
MOST_HELD: Final = 1 << 20
"""Most bytes of one queue pair's requests that wait for answers to leave.

It is more than a window of 128 packets with 4096 bytes each takes.
"""
_MIDDLE: Final = Part(1, 0, 0, begins=False, last=False)
_LAST: Final = Part(1, 0, 0, begins=False, last=True)
_MESSAGES: Final = tuple(op for op in Op if op < Op.READ)
_OPS: Final[dict[int, Op]] = {
    **{opcode_of(op, 0, 1): op for op in (*_MESSAGES, Op.COMPARE_SWAP, Op.FETCH_ADD)},
    **{opcode_of(op, 1, 2): op for op in _MESSAGES},
    int(BthOpcode.RC_SEND_FIRST): Op.SEND,
    int(BthOpcode.RC_SEND_MIDDLE): Op.SEND,
    int(BthOpcode.RC_WRITE_FIRST): Op.WRITE,
    int(BthOpcode.RC_WRITE_MIDDLE): Op.WRITE,
    int(BthOpcode.RC_READ_REQUEST): Op.READ,
}
"""What a packet is of, by opcode."""
_PARTS: Final = {
    int(BthOpcode.RC_SEND_MIDDLE): _MIDDLE,
    int(BthOpcode.RC_WRITE_MIDDLE): _MIDDLE,
    **{opcode_of(op, 1, 2): _LAST for op in _MESSAGES},
}
"""The place of a packet that does not begin its message, by opcode."""
_FIRST: Final = (int(BthOpcode.RC_SEND_FIRST), int(BthOpcode.RC_WRITE_FIRST))
_NOWHERE: Final = Route(b"", b"", b"", b"")


def request_of(packet: TransportPacket, mtu: int) -> Request:
    """Return a packet or a run as a unit of a request.

    How long a SEND is only its last packet says.
    """
    code, payload = packet.opcode, [packet.payload, *packet.more]
    op, part, count = _OPS[code], _PARTS.get(code), len(payload)
    size = count * len(packet.payload)
    if code in _FIRST:
        part = Part(0, packet.length, 0, begins=True, last=False)
    elif part is None and op in (Op.WRITE, Op.WRITE_IMM) and packet.length != size:
        part = Part(0, packet.length, 0, begins=True, last=True)
    reads = op is Op.READ
    request = Request(
        op,
        _NOWHERE,
        0,
        0,
        packet.psn,
        packets_of(packet.length, mtu) if reads else count,
        packet.length if reads else size,
        [memoryview(each) for each in payload] if size else (),
        packet.va,
        packet.rkey,
        packet.immediate,
        packet.solicited,
        atomic=(packet.operand, packet.compare, 0, 0),
        srqn=packet.srqn,
        part=part,
    )
    request.ack = packet.ack
    return request


def requests_in(responder: Responder, packet: TransportPacket) -> list[TransportPacket]:
    """Return the requests in a packet or a run, which stays one if it comes in order and fits.

    A message that is too long is refused at the packet that is too much.
    """
    if packet.more and (
        packet.psn != responder.expected
        or responder.full
        or not responder.has_room((1 + len(packet.more)) * len(packet.payload))
    ):
        return packet.apart()
    return [packet]


def answers_of(
    responder: Responder, side: RemoteSide, mtu: int, most: int
) -> list[TransportPacket]:
    """Return packets of the answers that are due, in order, those in the middle of a read as runs.

    Requests that waited are carried out where their turn comes. These and the packets are `most`
    together, if there are as many.
    """
    packets: list[TransportPacket] = []
    left = most
    while left > 0 and responder.busy:
        answer = responder.next_answer(left)
        if answer is None:
            left -= responder.proceed(left)
            continue
        left -= answer.given
        request = answer.request
        if answer.original is not None:
            code = int(BthOpcode.RC_ATOMIC_ACK)
            brought = TransportPacket(code, answer.psn, msn=answer.msn, original=answer.original)
            packets.append(brought)
        elif not answer.lazy or request is None:
            code, syndrome = int(BthOpcode.RC_ACK), answer.syndrome
            packets.append(TransportPacket(code, answer.psn, syndrome=syndrome, msn=answer.msn))
        else:
            try:
                _add_data(packets, answer, request, responder.msn, side, mtu)
            except NotPresent:
                responder.take_back(answer)
                break
            except Nak as nak:
                responder.unreadable(answer, nak)
    return packets


def _add_data(
    packets: list[TransportPacket],
    answer: Answer,
    request: Request,
    msn: int,
    side: RemoteSide,
    mtu: int,
) -> None:
    """Add the packets of a read that were given out; raises `Nak` if they may not be read."""
    first, last = answer.sent - answer.given, answer.packets - 1
    offset = first * mtu
    length = min(answer.given * mtu, request.length - offset)
    view = memoryview(b"".join(side.read(request, offset, length)))
    more: list[bytes | memoryview] = []
    for index in range(first, answer.sent):
        payload, view = view[:mtu], view[mtu:]
        if max(first, 1) < index < last:
            more.append(payload)
            continue
        more, psn = [], (answer.psn + index) & PSN_MASK
        code = read_response_of(index, answer.packets)
        packets.append(TransportPacket(code, psn, payload, msn=msn, more=more))


class PacketReceiver(ConnectedReceiver):
    """The responder of one peer, on a network of packets."""

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp, packets=True)
        self._held = 0  # bytes of requests that wait, as the port knows
        self._scheduled = False

    def receive_packet(self, packet: TransportPacket) -> None:
        """Carry out what a packet of the connected peer asks for."""
        qp = self._qp
        if qp.state not in RECEIVING:
            return
        responder = self._open()
        for each in requests_in(responder, packet):
            if qp.state in RECEIVING:
                count, size = size_of_packet(qp.route, each)
                qp.traffic.received(count, size)
                self._take(responder, each)

    def _take(self, responder: Responder, packet: TransportPacket) -> None:
        request = request_of(packet, self._qp.mtu)
        if responder.full:  # it has to wait until answers have left
            size = cost(request)
            if not self._qp.port.admits_packet(size, responder.held + size <= MOST_HELD):
                return  # as if it had been lost
        responder.receive(request)
        self._take_over(responder)
        if not self._reliable:
            self._drop(responder, "")
        elif not self._scheduled:
            self._answer(responder)

    def stop(self) -> None:
        if self._responder is not None:
            self._responder.forget()
            self._account(self._responder)

    def _take_over(self, responder: Responder) -> None:
        super()._take_over(responder)
        self._account(responder)

    def _account(self, responder: Responder) -> None:
        """Count the bytes of requests that wait among those that wait for the port."""
        if self._held != responder.held:
            self._qp.port.hold(responder.held - self._held)
            self._held = responder.held

    def _answer(self, responder: Responder) -> None:
        """Send a burst of the answers that are due, and the others in later turns."""
        qp = self._qp
        if responder.reads and qp.port.crowded(qp.route.dmac):
            self._scheduled = True
            qp.bus.call_later(CROWDED_SECONDS, self._answer_more)
            return
        self._send_burst(responder)
        self._take_over(responder)
        if responder.stalled:
            self._scheduled = True  # until `resume`
        elif responder.busy:
            self._scheduled = True
            qp.engine.wait(self._answer_more)
        elif responder.failed and responder.refusal is not None:
            syndrome, event, reason = responder.refusal
            qp.bus.tell(
                Fact.NAK, qpn=qp.qpn, syndrome=syndrome, psn=responder.expected, reason=reason
            )
            qp.enter_error(event)

    def _send_burst(self, responder: Responder) -> None:
        """Send a burst of answers, of data only what the rate permits."""
        qp, left = self._qp, BURST
        while left > 0 and responder.busy and not responder.stalled:
            most = qp.engine.admits_data(left)
            if not most and responder.reads:
                return
            packets = answers_of(responder, self._memory, qp.mtu, max(most, 1))
            left -= max(most, 1)
            if packets:
                qp.engine.spend(sum((1 + len(each.more)) * len(each.payload) for each in packets))
                qp.send_packets(packets)

    def resume(self, *, failed: bool) -> None:
        super().resume(failed=failed)
        responder = self._responder
        if responder is not None and responder.stalled:
            responder.stalled = False
            self._answer_more()

    def _answer_more(self) -> None:
        self._scheduled = False
        if self._responder is not None and self._qp.state in RECEIVING:
            self._answer(self._responder)
