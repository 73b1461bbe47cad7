"""The sending half of a queue pair whose connection travels in packets.

It feeds `PacketRequester` with work requests and carries out what that asks for: packets out of
guest memory, one timer, completions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

from bluebridge.device.fabric.interface import Cancellable
from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.fabric.sizes import size_of_packet
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import ack_timeout_us
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import DmaError, Timer
from bluebridge.device.rdma.by_packets.congestion import LAB, Congestion, Pacer
from bluebridge.device.rdma.by_packets.requester import (
    Completed,
    Limits,
    LocalFailure,
    PacketRequester,
    Recall,
    Send,
    SetTimer,
)
from bluebridge.device.rdma.connected.sending import WINDOW, ConnectedSender
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import Sge, stretch
from bluebridge.device.rdma.pairs.costs import MESSAGE_COST
from bluebridge.device.rdma.pairs.engines import Outstanding, Pace
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    COMPARE_SWAP,
    FETCH_ADD,
    LOCAL,
    NOP,
    RECEIVING,
    SERVICES,
    CompletionStatus,
    PairState,
)
from bluebridge.device.rdma.work import SendWork, WorkError

LEAST_TIMEOUT: Final = 0.02
"""Shortest acknowledge time-out in seconds: both ends may share one processor with two guests."""
WINDOW_BYTES: Final = 1 << 17
"""Most bytes of packets without an answer, so that an inbox has room for those of many senders."""
PATIENT_US: Final = 500_000.0
"""Microseconds up to which a shorter acknowledge time-out may be stretched."""
_CARRIED_ATOMICS: Final = frozenset((COMPARE_SWAP, FETCH_ADD))


class PacketSender(ConnectedSender):
    """The requests of one queue pair, by the number of their entry, oldest first.

    Acknowledge time-outs of less than half a second last `time_factor` times as long as their code
    says, up to that.

    A request that must wait, or that fails before it is sent, is `_held` until those before it are
    complete.
    """

    def __init__(self, qp: QueuePair, time_factor: float = 1.0) -> None:
        super().__init__(qp)
        self._time_factor = time_factor
        self.congestion = Congestion(qp)
        self.pacer: Pacer | None = None
        self._left = 0  # when the last packet left, of a connection without answers
        self._delay: float | None = None  # of the timer that runs from the next departure
        self._requester: PacketRequester | None = None
        self._works: dict[int, SendWork] = {}
        self._timer: Timer | Cancellable | None = None

    @property
    def idle(self) -> bool:
        """True while no request waits for its answer."""
        return not self._works

    def outstanding(self) -> Outstanding:
        requester, numbers = self._requester, list(self._works)
        if requester is None:
            return Outstanding(numbers, 0, 0, False)
        return Outstanding(numbers, requester.retries, requester.rnr_retries, requester.waiting)

    # -- SendEngine ---------------------------------------------------------------------------

    def execute(self, work: SendWork) -> None:
        work.status = self._fault(work)
        super().execute(work)

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete an entry that makes no sense in error, after all entries before it."""
        self._tell_refused(index, error)
        work = SendWork(index, NOP)
        work.status = error.status
        super().execute(work)

    def abort(self) -> None:
        """Complete all outstanding requests as flushed."""
        flushed = list(self._works)
        if self._held is not None:
            flushed.append(self._held.index)
        self.stop()
        for index in flushed:
            self._qp.completions.fail_send(index, CompletionStatus.WR_FLUSH_ERR)

    def stop(self) -> None:
        """Forget all outstanding requests without completing them, and cancel the timer."""
        self._works.clear()
        self._held = None
        self._requester = None
        self._set_timer(None)
        if self.pacer is not None:
            self.pacer.stop()
            self.pacer = None

    # -- sending ------------------------------------------------------------------------------

    def _fault(self, work: SendWork) -> int:
        operation = work.operation
        if operation in LOCAL:
            return 0
        if operation in ATOMICS and operation not in _CARRIED_ATOMICS:
            return CompletionStatus.LOCAL_QP_OP_ERR
        return super()._fault(work)

    def _must_wait(self, work: SendWork) -> bool:
        if not self._works:
            return False
        if work.status or work.operation in LOCAL or len(self._works) >= WINDOW:
            return True
        return work.fence and any(other.returns_data for other in self._works.values())

    def _start(self, work: SendWork) -> None:
        qp = self._qp
        local = work.operation in LOCAL and not work.status
        if local:
            work.status = self._carry_out_locally(work)
        if work.status:
            qp.completions.fail_send(work.index, CompletionStatus(work.status))
            qp.enter_send_error()
        if work.status or local:
            return
        self._works[work.index] = work
        requester = self._requester
        if requester is None:
            requester = self._requester = PacketRequester(self._limits(), self.next_psn, self)
        qp.bus.concern(qp.qpn, work.index)  # it may have waited
        requester.post(work)
        self._act(requester)

    def _limits(self) -> Limits:
        qp = self._qp
        window = min(WINDOW, WINDOW_BYTES // qp.mtu)
        return Limits(
            mtu=qp.mtu,
            timeout=qp.ack_timeout,
            retries=qp.retry_count,
            rnr_retries=qp.rnr_retry,
            reads=qp.read_limit,
            window=window,
            ack_every=window // 2,
            time_factor=stretched(self._time_factor, qp.ack_timeout),
            reliable=self._reliable,
        )

    def _act(self, requester: PacketRequester) -> None:
        """Carry out the actions of the requester; an error in one ends the queue pair."""
        self.next_psn = requester.next_psn
        actions, requester.actions = requester.actions, []
        failed = False
        for action in actions:
            if self._requester is not requester:
                return  # a completion found its queue broken: all is flushed
            if isinstance(action, Send):
                if self.pacer is None:
                    self._transmit(action.packet)
                else:
                    self.pacer.submit(action.packet)
            elif isinstance(action, SetTimer):
                self._set_timer(action.seconds)
            elif isinstance(action, Recall):
                if self.pacer is not None:
                    self.pacer.recall()
            else:
                failed = self._complete(action) or failed
        if failed and self._requester is requester:
            self._qp.enter_send_error()

    def _transmit(self, packet: TransportPacket) -> None:
        qp, size = self._qp, len(packet.payload)
        qp.spent += MESSAGE_COST + size
        packet.service = SERVICES[qp.role]
        qp.traffic.sent(1, size_of_packet(qp.route, packet))
        if packet.index >= 0:
            qp.bus.concern(qp.qpn, packet.index)
        if not self._reliable:
            self._left = monotonic_ns()
        qp.port.send_packet(ConnectedPacket(qp.route, qp.remote_qpn, packet, qp.qpn))

    # -- congestion ---------------------------------------------------------------------------

    def reported(self) -> None:
        """Slow down after a report of congestion."""
        qp = self._qp
        if qp.state not in RECEIVING:
            return
        self.congestion.received += 1
        if self.pacer is None:
            self.pacer = Pacer(qp.bus, self)
        self.pacer.reported()

    def marked(self) -> None:
        self.congestion.marked()

    def admits_data(self) -> bool:
        return self.pacer is None or self.pacer.open

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

    def depart(self, packet: TransportPacket) -> None:
        """Send a packet that waited for its turn; time-outs count from now."""
        self._transmit(packet)
        delay, pacer = self._delay, self.pacer
        if delay is None or pacer is None or (pacer.sends and not delay):
            return
        self._start_timer(delay)
        if not pacer.sends:
            self._delay = None

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
            pacer.stop()
            self.pacer = None

    def _complete(self, done: Completed) -> bool:
        """Complete a request; return True if it failed."""
        work = self._works.pop(done.work.index)
        if done.status is None:
            if work.signalled:
                self._qp.completions.complete_send(
                    work.index, work.operation, work.length, self._left
                )
            return False
        self._qp.completions.fail_send(work.index, done.status)
        return True

    def _set_timer(self, seconds: float | None) -> None:
        self._delay = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is None:
            return
        seconds = max(seconds, LEAST_TIMEOUT) if seconds else 0.0
        if self.pacer is None or not self.pacer.sends:
            self._start_timer(seconds)
        else:
            self._delay = seconds

    def _start_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._qp.bus.call_later(seconds, self._expired)

    def _expired(self) -> None:
        """Act on the time-out, an acknowledge time-out once what is late has arrived.

        Requests or answers may wait in the inbox of a port, since the loop is behind: that is no
        loss. An answer that comes out of it cancels the time-out.
        """
        self._timer = None
        requester = self._requester
        if requester is not None and self._reliable and not requester.waiting:
            self._timer = self._qp.port.settle(self._overdue)
        else:
            self._overdue()

    def _overdue(self) -> None:
        self._timer = None
        qp, requester = self._qp, self._requester
        if requester is None or qp.state not in (PairState.RTS, PairState.SQD):
            return
        if not requester.waiting and self._reliable:
            qp.port.diagnostics.add("sq_num_to")
            psn, retry, most = requester.oldest, requester.retries + 1, qp.retry_count
            if retry <= most:
                qp.bus.tell(Fact.NO_ANSWER, qpn=qp.qpn, psn=psn, retry=retry, most=most)
            else:
                qp.bus.tell(Fact.RETRIES_USED_UP, qpn=qp.qpn, psn=psn, most=most)
        qp.spent = 0
        requester.expired()
        self._act(requester)
        self._go_on()

    # -- answers ------------------------------------------------------------------------------

    def receive_packet(self, packet: TransportPacket) -> None:
        """Process an answer of the connected peer."""
        qp, requester = self._qp, self._requester
        if requester is None or qp.state not in (PairState.RTS, PairState.SQD):
            return
        qp.traffic.received(1, size_of_packet(qp.route, packet))
        if packet.syndrome:
            qp.port.diagnostics.was_refused(packet.syndrome)
            syndrome = packet.syndrome
            qp.bus.tell(Fact.REFUSAL, qpn=qp.qpn, syndrome=syndrome, psn=packet.psn)
        requester.receive(packet)
        self._act(requester)
        self._go_on()

    # -- memory -------------------------------------------------------------------------------

    def load(self, work: SendWork, offset: int, length: int) -> bytes:
        """Return bytes of a message that is sent; raises `LocalFailure`."""
        self._qp.bus.concern(self._qp.qpn, work.index)
        try:
            return b"".join(self._qp.memory.gather(_stretch(work, offset, length), note=True))
        except (AccessError, DmaError) as error:
            self._tell_refused(work.index, error)
            raise LocalFailure from error

    def store(self, work: SendWork, offset: int, data: bytes | memoryview) -> None:
        """Store bytes that a read or an atomic brought; raises `LocalFailure`."""
        length = len(data)
        try:
            self._qp.memory.store(_stretch(work, offset, length), length, [data])
        except (AccessError, DmaError) as error:
            self._tell_refused(work.index, error)
            raise LocalFailure from error


def _stretch(work: SendWork, offset: int, length: int) -> Sequence[Sge | bytes]:
    return work.parts if length == work.length else stretch(work.parts, offset, length)


def stretched(factor: float, code: int) -> float:
    """Return the factor by which the acknowledge time-out with this code is stretched."""
    asked = ack_timeout_us(code)
    return min(factor, max(1.0, PATIENT_US / asked)) if asked else 1.0
