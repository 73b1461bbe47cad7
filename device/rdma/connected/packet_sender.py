"""Requests packet by packet: out of guest memory onto a wire of packets, at the present rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.sizes import size_of_packet
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode, ack_timeout_us
from bluebridge.device.packets.segmentation import opcode_of
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.connected.congestion import LAB, Congestion, Pacer
from bluebridge.device.rdma.connected.requester import WINDOW, Limits, Requester
from bluebridge.device.rdma.connected.responder import MASK
from bluebridge.device.rdma.connected.sender import ConnectedSender
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import stretch
from bluebridge.device.rdma.pairs.costs import MESSAGE_COST
from bluebridge.device.rdma.pairs.engines import Pace
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import (
    ATOMIC_SIZE,
    ATOMICS,
    COMPARE_SWAP,
    FETCH_ADD,
    READ,
    RECEIVING,
    CompletionStatus,
    PairState,
)
from bluebridge.device.rdma.work import SendWork

LEAST_TIMEOUT: Final = 0.02
"""Shortest acknowledge time-out in seconds: both ends may share one processor with two guests."""
WINDOW_BYTES: Final = 1 << 17
"""Most bytes of packets without an answer, so that an inbox has room for those of many senders."""
PATIENT_US: Final = 500_000.0
"""Microseconds up to which a shorter acknowledge time-out may be stretched."""
_CARRIED_ATOMICS: Final = frozenset((COMPARE_SWAP, FETCH_ADD))
_FINAL_DATA: Final = (BthOpcode.RC_READ_RESPONSE_LAST, BthOpcode.RC_READ_RESPONSE_ONLY)


def packets_of(requester: Requester, work: SendWork, data: bytes) -> list[TransportPacket]:
    """Return the packets of the unit that was given out, those in the middle of a message as runs.

    The packet of a read asks for all from there on. An acknowledgement is asked for behind a
    message and twice in a window.
    """
    limits, first, last = requester.limits, requester.index, work.packets - 1
    mtu, half = limits.mtu, max(limits.window // 2, 1)
    psn = (work.psn + first) & PSN_MASK
    if work.operation == READ:
        offset = first * mtu
        return [
            TransportPacket(
                BthOpcode.RC_READ_REQUEST,
                psn,
                ack=True,
                va=(work.remote_address + offset) & MASK,  # a peer may answer beyond
                rkey=work.rkey,
                length=work.length - offset,
                srqn=work.srqn,
                index=work.index,
            )
        ]
    found: list[TransportPacket] = []
    more: list[bytes | memoryview] = []
    middle, view = -1, memoryview(data)
    for index in range(first, first + requester.packets):
        payload, view = view[:mtu], view[mtu:]
        due = (psn + 1) & PSN_MASK
        ack = limits.reliable and (index == last or not due % half)
        opcode = opcode_of(work.operation, index, work.packets)
        if opcode == middle:
            more.append(payload)
            found[-1].ack = ack
        else:
            more = []
            found.append(
                TransportPacket(
                    opcode,
                    psn,
                    payload,
                    ack=ack,
                    solicited=work.solicited and index == last,
                    va=work.remote_address,
                    rkey=work.rkey,
                    length=work.length,
                    operand=work.atomic[0],
                    compare=work.atomic[1],
                    immediate=work.immediate,
                    srqn=work.srqn,
                    index=work.index,
                    more=more,
                )
            )
        middle, psn = -1 if ack or not index else opcode, due
    return found


def answers_in(requester: Requester, packet: TransportPacket) -> list[TransportPacket]:
    """Return the answers in a packet or a run, which stays one if it is of the oldest read."""
    if packet.more and packet.psn == requester.oldest and requester.pending:
        work, end = requester.pending[0], packet.psn + 1 + len(packet.more)
        if work.operation == READ and (end - work.psn) & PSN_MASK < work.packets:
            return [packet]
    return packet.apart()


def data_of(requester: Requester, work: SendWork, packet: TransportPacket) -> bytes | None:
    """Return what an answer brings for a read or an atomic; None if it is no answer to that."""
    if packet.opcode == BthOpcode.RC_ATOMIC_ACK:
        original = packet.original.to_bytes(ATOMIC_SIZE, "little")
        return original if work.operation in ATOMICS else None
    index, mtu, count = (
        (packet.psn - work.psn) & PSN_MASK,
        requester.limits.mtu,
        1 + len(packet.more),
    )
    ends = packet.opcode in _FINAL_DATA
    if work.operation != READ or ends != (index + count == work.packets):
        return None
    data = b"".join((packet.payload, *packet.more))
    return data if len(data) == min(count * mtu, work.length - index * mtu) else None


class PacketSender(ConnectedSender):
    """The requests of one queue pair.

    Acknowledge time-outs of less than half a second last `time_factor` times as long as their code
    says, up to that. `pacer` is there while a rate is kept.
    """

    def __init__(self, qp: QueuePair, time_factor: float = 1.0) -> None:
        super().__init__(qp)
        self._time_factor = time_factor
        self.congestion = Congestion(qp)
        self.pacer: Pacer | None = None

    def _take_limits(self, limits: Limits) -> None:
        super()._take_limits(limits)
        limits.window = min(WINDOW, WINDOW_BYTES // limits.mtu)
        limits.part = 1 if self._paced else limits.window
        limits.time_factor = stretched(self._time_factor, limits.timeout)
        limits.least = LEAST_TIMEOUT

    def stop(self) -> None:
        super().stop()
        self._pace(None)

    def _pace(self, pacer: Pacer | None) -> None:
        """Send as a pacer lets units go, one packet each, or in bursts without one."""
        if self.pacer is not None and pacer is None:
            self.pacer.stop()
        self.pacer, self._paced = pacer, pacer is not None
        self._limits.part = 1 if self._paced else self._limits.window

    # -- requests -------------------------------------------------------------------------------

    def _fault(self, work: SendWork) -> int:
        if work.operation in ATOMICS and work.operation not in _CARRIED_ATOMICS:
            return CompletionStatus.LOCAL_QP_OP_ERR
        return super()._fault(work)

    def _may_send(self) -> bool:
        pacer = self.pacer
        if pacer is None or pacer.open:
            return True
        pacer.wait(self._send_more)
        return False

    def _send_more(self) -> None:
        requester = self._requester
        if requester is not None:
            self._act(requester)
            self._go_on(True)

    def _send_unit(self, requester: Requester, work: SendWork) -> None:
        qp, data = self._qp, b""
        if not work.returns_data:
            mtu = requester.limits.mtu
            offset = requester.index * mtu
            length = min(requester.packets * mtu, work.length - offset)
            parts = work.parts if length == work.length else stretch(work.parts, offset, length)
            data = b"".join(qp.memory.gather(parts, note=True))
        packets = packets_of(requester, work, data)
        qp.spent += MESSAGE_COST * requester.packets + len(data)
        qp.send_packets(packets)
        if self.pacer is not None:
            self.pacer.spend(len(data))

    # -- answers ------------------------------------------------------------------------------

    def receive_packet(self, packet: TransportPacket) -> None:
        qp, requester, syndrome = self._qp, self._requester, packet.syndrome
        if requester is None or qp.state not in (PairState.RTS, PairState.SQD):
            return
        count, size = size_of_packet(qp.route, packet)
        qp.traffic.received(count, size)
        if syndrome:
            qp.diagnostics.was_refused(syndrome)
            qp.bus.tell(Fact.REFUSAL, qpn=qp.qpn, syndrome=syndrome, psn=packet.psn)
        blocked = requester.blocked
        brings = packet.opcode != BthOpcode.RC_ACK
        for each in answers_in(requester, packet):
            if requester.expects(each.psn):
                work = requester.receive(each.psn, 1, 0 if brings else syndrome, brings=brings)
                if work is not None:
                    self._store(requester, work, each)
        self._act(requester)
        self._go_on(blocked)

    def _store(self, requester: Requester, work: SendWork, packet: TransportPacket) -> None:
        qp, data = self._qp, data_of(requester, work, packet)
        if data is None:
            requester.fail(CompletionStatus.BAD_RESP_ERR)
            return
        offset = ((packet.psn - work.psn) & PSN_MASK) * requester.limits.mtu
        whole = len(data) == work.length
        parts = work.parts if whole else stretch(work.parts, offset, len(data))
        try:
            qp.memory.store(parts, len(data), [data])
        except (AccessError, DmaError) as error:
            if not self._comes_again(requester, work, packet.psn, error):
                self._tell_refused(work.index, error)
                requester.fail(CompletionStatus.LOCAL_PROT_ERR)
            return
        requester.stored(1 + len(packet.more))

    # -- congestion ---------------------------------------------------------------------------

    def reported(self) -> None:
        qp = self._qp
        if qp.state not in RECEIVING:
            return
        self.congestion.received += 1
        if self.pacer is None:
            self._pace(Pacer(qp.bus, self))
        if self.pacer is not None:
            self.pacer.reported()

    def marked(self) -> None:
        self.congestion.marked()

    def admits_data(self, most: int) -> int:
        return most if self.pacer is None else int(self.pacer.open)

    def spend(self, size: int) -> None:
        if self.pacer is not None:
            self.pacer.spend(size)

    def wait(self, answerer: Callable[[], None]) -> None:
        if self.pacer is None:
            self._qp.bus.call_soon(answerer)
        else:
            self.pacer.wait(answerer)

    def pace(self) -> Pace:
        seen, line = self.congestion, LAB.line_rate
        if self.pacer is None:
            return Pace(seen.marks, seen.sent, seen.received, line, line, 0.0, False)
        now = self.pacer.control
        return Pace(
            seen.marks, seen.sent, seen.received, now.rate, now.target, now.alpha, now.limited
        )

    def rate_changed(self, cause: str) -> None:
        """Log the rate; without a limit there is no pacer any more when nothing waits."""
        pacer = self.pacer
        if pacer is None:
            return
        control = pacer.control
        self._qp.bus.tell(
            Fact.RATE,
            qpn=self._qp.qpn,
            rate=round(control.rate * 1e6),
            target=round(control.target * 1e6),
            alpha=round(control.alpha * 1e3),
            cause=cause,
        )
        if pacer.done:
            self._pace(None)


def stretched(factor: float, code: int) -> float:
    """Return the factor by which the acknowledge time-out with this code is stretched."""
    asked = ack_timeout_us(code)
    return min(factor, max(1.0, PATIENT_US / asked)) if asked else 1.0
