"""The answering half of a connected queue pair: feeds a `Responder`, and sends its answers."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.fabric.sizes import size_of_request, size_of_response
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.rdma.connected.remote_memory import RemoteMemory
from bluebridge.device.rdma.connected.responder import Answer, Responder
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import Trouble
from bluebridge.device.rdma.vocabulary import RECEIVING, RELIABLE, AsyncEvent, PairState, Role

_UNRELIABLE: Final = frozenset((Op.SEND, Op.SEND_IMM, Op.SEND_INV, Op.WRITE, Op.WRITE_IMM))


class ConnectedReceiver(ReceiveEngine):
    """The responder of one peer, whose units are packets if there are any."""

    def __init__(self, qp: QueuePair, *, packets: bool) -> None:
        super().__init__()
        self._qp = qp
        self._packets = packets
        self._reliable = qp.role in RELIABLE
        self._xrc = qp.role is Role.XRC
        self._memory = RemoteMemory(qp)
        self._responder: Responder | None = None

    def abort(self) -> None:
        self._memory.flush()
        self.stop()

    def resume(self, *, failed: bool) -> None:
        self._memory.resume(failed=failed)

    def _open(self) -> Responder:
        """Return the responder, with the limits of the context; the first unit makes it."""
        qp, responder = self._qp, self._responder
        if not qp.established:
            qp.established = True
            if qp.state is PairState.RTR:  # the connection manager's last message may be lost
                qp.completions.event(AsyncEvent.COMM_EST)
        if responder is None:
            responder = self._responder = Responder(
                qp.mtu if self._packets else 0, self.psn, self._memory, reliable=self._reliable
            )
        responder.depth, responder.rnr_code = qp.answer_limit, qp.min_rnr_timer
        return responder

    def _take_over(self, responder: Responder) -> None:
        """Take over what the responder counts."""
        self.psn, self.msn = responder.expected, responder.msn
        if responder.repeated:
            self._qp.diagnostics.add(Trouble.DUPLICATE_CAME, responder.repeated)
            responder.repeated = 0

    def _drop(self, responder: Responder, operation: str) -> None:
        """Tell of a message of UC that is dropped; one that a receive was spent on is an error."""
        if responder.refusal is None:
            return
        _, event, reason = responder.refusal
        responder.refusal = None
        qp = self._qp
        if operation:
            qp.bus.tell(Fact.DROPPED, qpn=qp.qpn, operation=operation, reason=reason)
        else:
            qp.bus.tell(Fact.DROPPED, qpn=qp.qpn, reason=reason)
        if event is None:
            qp.enter_error()


class PartReceiver(ConnectedReceiver):
    """The responder of one peer, on a network of whole messages and parts of them."""

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp, packets=False)

    def receive(self, request: Request) -> None:
        """Carry out a request of the connected peer; any other is dropped without an answer."""
        qp = self._qp
        if (
            qp.state not in RECEIVING
            or request.source_qpn != qp.remote_qpn
            or request.reliable != self._reliable
            or (request.srqn is None) == self._xrc
        ):
            return
        responder = self._open()
        packets, size = request.on_wire or size_of_request(request)
        qp.traffic.received(packets, size)
        if not self._reliable and request.op not in _UNRELIABLE:
            return
        responder.receive(request)
        self._take_over(responder)
        if not self._reliable:
            self._drop(responder, request.op.name)
            return
        if responder.refusal is not None:
            syndrome, _, reason = responder.refusal
            self._tell_nak(syndrome, request, reason)
        while (answer := responder.next_answer()) is not None:
            if answer.syndrome == Syndrome.NAK_PSN:
                self._tell_nak(answer.syndrome, request, f"expected PSN {answer.psn:#x}")
            self._send(answer)
        if responder.refusal is not None:
            qp.enter_error(responder.refusal[1])

    def _send(self, answer: Answer) -> None:
        qp, done = self._qp, answer.request
        if answer.syndrome:
            qp.diagnostics.refused(answer.syndrome)
        response = Response(
            qp.route,
            qp.remote_qpn,
            answer.psn,
            answer.syndrome,
            answer.msn,
            answer.data,
            answer.original,
            xrc=self._xrc,
            source_qpn=qp.qpn,
        )
        if done is not None:
            response.packets, response.part = done.packets, done.part
            response.read = answer.reads
        packets, size = response.on_wire = size_of_response(response)
        qp.traffic.sent(packets, size)
        qp.port.send(response)

    def _tell_nak(self, syndrome: int, request: Request, reason: str) -> None:
        self._qp.bus.tell(
            Fact.NAK,
            qpn=self._qp.qpn,
            syndrome=syndrome,
            operation=request.op.name,
            psn=request.psn,
            reason=reason,
        )
