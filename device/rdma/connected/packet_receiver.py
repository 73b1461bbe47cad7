"""The answering half of a queue pair whose connection travels in packets.

It feeds `PacketResponder` with packets, does what that asks of memory and receives with the checks
of `Responder`, and sends its answers, those of a long read a burst at a time.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import ConnectedPacket, Request
from bluebridge.device.fabric.sizes import size_of_packet
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.connected.packet_responder import PacketResponder, cost
from bluebridge.device.rdma.connected.responder import NotReady, Responder, invalid
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import stretch
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import RECEIVING, SERVICES, AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

BURST: Final = 32
"""Most packets of answers that are made in one turn of the loop."""
CROWDED_SECONDS: Final = 0.001
"""Seconds until data of a read are offered again to a port for which much waits."""
MOST_HELD: Final = 1 << 20
"""Most bytes of one queue pair's requests that wait for answers to leave.

It is more than a window of 128 packets with 4096 bytes each takes.
"""


class PacketReceiver(Responder):
    """The responder of one peer; the receive that a message moves into is `_receive`.

    That of an XRC queue pair is of the SRQ that a packet names.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._packets: PacketResponder | None = None
        self._held = 0  # bytes of requests that wait, as the port knows
        self._scheduled = False
        self._area = self._request(Op.WRITE)

    def receive(self, request: Request) -> None:
        """Ignore a whole request, which no network of packets has."""

    def receive_packet(self, packet: TransportPacket) -> None:
        """Carry out what a packet of the connected peer asks for."""
        qp = self._qp
        if qp.state not in RECEIVING:
            return
        if not qp.established:
            self._establish()
        qp.traffic.received(1, size_of_packet(qp.route, packet))
        responder = self._packets
        if responder is None:
            responder = self._packets = PacketResponder(
                qp.mtu,
                self.psn,
                self,
                depth=qp.answer_limit,
                rnr_code=qp.min_rnr_timer,
                reliable=self._reliable,
            )
        if responder.full and not self._has_room(responder, packet):
            return  # as if it had been lost
        responder.receive(packet)
        self._take_over(responder)
        if not self._reliable and responder.refusal is not None:
            self._drop(responder.refusal)
            responder.refusal = None
        elif not self._scheduled:
            self._answer_packets(responder)

    def abort(self) -> None:
        super().abort()
        self.stop()

    def stop(self) -> None:
        if self._packets is not None:
            self._packets.forget()
            self._account(self._packets)

    def _has_room(self, responder: PacketResponder, packet: TransportPacket) -> bool:
        """Return True if a request may wait until answers have left."""
        size = cost(packet)
        return self._qp.port.admits_packet(size, responder.held + size <= MOST_HELD)

    def _take_over(self, responder: PacketResponder) -> None:
        """Take over what the responder counts."""
        self.psn, self.msn = responder.expected, responder.msn
        if responder.repeated:
            self._qp.port.diagnostics.add("rq_num_dup", responder.repeated)
            responder.repeated = 0
        self._account(responder)

    def _account(self, responder: PacketResponder) -> None:
        """Count the bytes of requests that wait among those that wait for the port."""
        if self._held != responder.held:
            self._qp.port.hold(responder.held - self._held)
            self._held = responder.held

    def _drop(self, refusal: tuple[Syndrome, AsyncEvent | None, str]) -> None:
        """Tell of a message of UC that is dropped; one that a receive was spent on is an error."""
        _, event, reason = refusal
        self._qp.bus.tell(Fact.DROPPED, qpn=self._qp.qpn, reason=reason)
        if event is None:
            self._qp.enter_error()

    def _answer_packets(self, responder: PacketResponder) -> None:
        """Send a burst of the answers that are due, and the others in later turns."""
        qp = self._qp
        if responder.reads and qp.port.crowded(qp.route.dmac):
            self._scheduled = True
            qp.bus.call_later(CROWDED_SECONDS, self._answer_more)
            return
        self._send_burst(responder)
        self._take_over(responder)
        if responder.busy:
            self._scheduled = True
            qp.engine.wait(self._answer_more)
        elif responder.failed and responder.refusal is not None:
            syndrome, event, reason = responder.refusal
            qp.bus.tell(
                Fact.NAK, qpn=qp.qpn, syndrome=syndrome, psn=responder.expected, reason=reason
            )
            qp.enter_error(event)

    def _leave(self, packets: list[TransportPacket]) -> None:
        qp = self._qp
        for packet in packets:
            packet.service = SERVICES[qp.role]
            qp.traffic.sent(1, size_of_packet(qp.route, packet))
            if packet.syndrome:
                qp.port.diagnostics.refused(packet.syndrome)
            qp.port.send_packet(ConnectedPacket(qp.route, qp.remote_qpn, packet, qp.qpn))

    def _send_burst(self, responder: PacketResponder) -> None:
        """Send a burst of answers, of data only what the rate permits."""
        engine = self._qp.engine
        for _ in range(BURST):
            if not responder.busy or (responder.reads and not engine.admits_data()):
                return
            packets = responder.answers(1)
            self._leave(packets)
            for packet in packets:
                engine.spend(len(packet.payload))

    def _answer_more(self) -> None:
        self._scheduled = False
        if self._packets is not None and self._qp.state in RECEIVING:
            self._answer_packets(self._packets)

    # -- RemoteSide ---------------------------------------------------------------------------

    def choose_srq(self, packet: TransportPacket) -> None:
        """Receive from the SRQ that a packet of XRC names; raises `Nak`."""
        if self._xrc and not self._find_srq(packet.srqn):
            raise invalid(f"SRQ {packet.srqn:#x} is not in XRC domain {self._qp.xrcd}")

    def check_write(self, va: int, rkey: int, length: int) -> None:
        """Check the first and the last byte of a message, whose packets are checked one by one."""
        area = self._area
        area.rkey = rkey
        for address in (va, va + length - 1) if length else (va,):
            area.remote_address = address
            self._range(area, min(length, 1))

    def write(self, va: int, rkey: int, data: bytes | memoryview) -> None:
        """Write the bytes of one packet; raises `Nak`."""
        area = self._area
        area.remote_address, area.rkey = va, rkey
        runs = self._range(area, len(data))
        self._move([memoryview(data)], runs, self._views(runs))

    def read(self, va: int, rkey: int, length: int) -> bytes:
        """Return bytes that one packet of an answer carries; raises `Nak`."""
        request = self._request(Op.READ)
        request.remote_address, request.rkey, request.length = va, rkey, length
        return b"".join(self._read(request))

    def operate(self, op: Op, packet: TransportPacket) -> int:
        """Carry out an atomic; returns what was in memory before, raises `Nak`."""
        request = self._request(op)
        request.remote_address, request.rkey = packet.va, packet.rkey
        request.atomic = (packet.operand, packet.compare, 0, 0)
        return self._atomic(request)

    def take_receive(self) -> bool:
        """Take the next receive, for the message that begins; False if there is none."""
        if self._receive is not None:
            return True  # of a message of UC that broke off
        try:
            self._receive = self._take()
        except NotReady:
            return False
        return True

    def place(self, offset: int, data: bytes | memoryview) -> None:
        """Store bytes of a message in the receive that was taken; raises `Nak`."""
        qp, work, length = self._qp, self._taken(), len(data)
        if offset + length > sum(sge[2] for sge in work.sges):
            self._receive = None
            raise self._failed(work, CompletionStatus.LOCAL_LENGTH_ERR, "the message is too long")
        try:
            qp.memory.store(stretch(work.sges, offset, length), length, [data], work.pd)
        except (AccessError, DmaError) as error:
            self._receive = None
            raise self._failed(work, CompletionStatus.LOCAL_PROT_ERR, str(error)) from error

    def complete(self, op: Op, length: int, packet: TransportPacket) -> None:
        """Complete the receive that was taken; raises `Nak`."""
        work, self._receive = self._taken(), None
        request = self._request(op)
        request.length, request.immediate = length, packet.immediate
        request.solicited = packet.solicited
        if op is Op.SEND_INV:
            self._invalidate(work, packet.immediate)
        self._complete_message(work, request)

    def _taken(self) -> ReceiveWork:
        work = self._receive
        if work is None:  # flushed in the middle of its message
            raise invalid("no receive is taken")
        return work

    def _request(self, op: Op) -> Request:
        """Return what `Responder` checks, without what only whole messages have."""
        return Request(op, self._qp.route, 0, 0, 0, 1, 0)
