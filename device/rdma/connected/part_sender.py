"""Requests as whole messages, on a network that carries those; very long ones go in parts.

One part goes out per turn of the server's loop. No view is kept from one part to the next: keys and
memory are looked up again for each, as an adapter does for each packet, so a region that goes away
in between fails the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Part, Payload, Request, Response
from bluebridge.device.fabric.sizes import size_of_request, size_of_response
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK, RNR_TIMER_US, Syndrome
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.connected.requester import KIND, Limits, Requester, Sending
from bluebridge.device.rdma.connected.sender import ConnectedSender
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import READ as MAY_READ
from bluebridge.device.rdma.memory.scatter_gather import WRITE as MAY_WRITE
from bluebridge.device.rdma.memory.scatter_gather import Sge, stretch
from bluebridge.device.rdma.pairs.costs import (
    FIRST_PART_BYTES,
    LEAST_PART_BYTES,
    MESSAGE_COST,
    MOST_GROWTH,
    MOST_PART_BYTES,
    PART_SECONDS,
    PIECE_COST,
    WHOLE_BYTES,
)
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import (
    ATOMIC_SIZE,
    ATOMICS,
    OPS,
    READ,
    CompletionStatus,
    PairState,
)
from bluebridge.device.rdma.work import SendWork

MIN_TIMEOUT: Final = 0.001
"""Shortest acknowledge timeout in seconds, since a server that shares its CPU may be late."""
OFFER_SECONDS: Final = 0.00025
"""Seconds per repeated offer, on the average over all waiting queue pairs of a port.

A receiver may ask for one every 10 us, and any number of queue pairs may meet such receivers.
"""


class PartSender(ConnectedSender):
    """The requests of one queue pair.

    `_burst` counts the reads of one walk of the ring that would be under way together: the fabric
    answers at once, while an adapter sends the next read before it has the answer to the first.
    `fast_rnr`: a receiver with RNR timer code 0 is offered its request every `HOLD_SECONDS`.
    `_size` is how many bytes the next part may have, `_since` when the last one left.
    """

    def __init__(self, qp: QueuePair, *, fast_rnr: bool = False) -> None:
        super().__init__(qp)
        self._fast_rnr = fast_rnr
        self._burst = 0
        self._size = FIRST_PART_BYTES
        self._since = 0.0

    def _take_limits(self, limits: Limits) -> None:
        super()._take_limits(limits)
        limits.packets, limits.whole, limits.window = False, WHOLE_BYTES, 1 << 24
        limits.least, limits.held = MIN_TIMEOUT, self._fast_rnr
        limits.part = self._size // limits.mtu

    def finish(self) -> None:
        """End a walk of the ring: its requests are sent already, only the burst count restarts."""
        self._burst = 0

    # -- requests -------------------------------------------------------------------------------

    def _send_unit(self, requester: Requester, work: SendWork) -> None:
        qp, first = self._qp, requester.first
        if work.fence and first:
            self._burst = 0  # it waits for all answers
        part: Part | None = None
        parts: Sequence[Sge | bytes] = work.parts
        length, address, ahead = work.length, work.remote_address, 0
        if length > WHOLE_BYTES:
            part = self._part(requester, work)
            length, address = self._length(requester, work), address + part.offset
            parts = stretch(parts, part.offset, length)
            self._since = monotonic()
        payload: Payload = ()
        if not work.returns_data:
            payload = qp.memory.gather(parts, note=first)
            count = len(payload)
        elif part is None:
            count = len(qp.bus.views(qp.memory.scatter(parts, length)))
            ahead = self._ahead(requester)
        else:
            count = 0
        request = Request(
            OPS[work.operation],
            qp.route,
            qp.qpn,
            qp.remote_qpn,
            (work.psn + requester.index) & PSN_MASK,
            requester.packets,
            length,
            payload,
            address,
            work.rkey,
            work.immediate,
            work.solicited,
            self._reliable,
            work.atomic,
            work.srqn if self._xrc else None,
            part,
            ahead,
        )
        qp.spent += MESSAGE_COST + PIECE_COST * count + length
        packets, size = request.on_wire = size_of_request(request)
        qp.traffic.sent(packets, size)
        qp.port.send(request)
        if part is not None and not self._reliable:
            self._measure(part.last)

    def _carry_out_locally(self, work: SendWork) -> int:
        self._burst = 0  # it has waited for all answers
        return super()._carry_out_locally(work)

    def _ahead(self, requester: Requester) -> int:
        """Count the reads and atomics that are under way in front of the one that is sent now."""
        ahead = max(self._burst, requester.reads - 1) if requester.first else self._burst
        self._burst += 1
        return min(ahead, self._qp.read_limit - 1)

    def _length(self, requester: Requester, work: SendWork) -> int:
        mtu = self._qp.mtu
        return min(requester.packets * mtu, work.length - requester.index * mtu)

    def _part(self, requester: Requester, work: SendWork) -> Part:
        """Return the place of the part that is due; before the first all keys are checked."""
        index, first, offset = requester.index, requester.first, requester.index * self._qp.mtu
        if not index and first:
            right = MAY_WRITE if work.returns_data else MAY_READ
            self._qp.memory.check(work.parts, work.length, right)
        return Part(
            offset,
            work.length,
            work.packets - index,
            begins=not offset or not first,
            last=index + requester.packets == work.packets,
        )

    def _measure(self, last: bool) -> None:
        """Adapt the size of parts to the time that one has taken; the next message begins anew."""
        seconds = monotonic() - self._since
        self._size = FIRST_PART_BYTES if last else _next_size(self._size, seconds)
        self._limits.part = self._size // self._limits.mtu

    # -- answers ------------------------------------------------------------------------------

    def receive(self, response: Response) -> None:
        """Process an answer of the responder; one that fits no pending request is ignored."""
        qp, requester = self._qp, self._requester
        if requester is None or not self._reliable:
            return
        if qp.state not in (PairState.RTS, PairState.SQD) or not requester.expects(response.psn):
            return
        packets, size = response.on_wire or size_of_response(response)
        qp.traffic.received(packets, size)
        syndrome, troubles = response.syndrome, requester.troubles
        if syndrome:
            qp.diagnostics.was_refused(syndrome)
        blocked = requester.blocked
        part, oldest = requester.pending[0].length > WHOLE_BYTES, requester.oldest
        work = requester.receive(
            response.psn,
            response.packets,
            syndrome,
            brings=response.read
            or response.atomic_original is not None
            or len(response.payload) > 0,
        )
        if work is not None:
            self._store(requester, work, response)
        if syndrome or requester.troubles != troubles or requester.failure is not None:
            self._note_trouble(requester, syndrome, troubles)
        elif part and requester.oldest != oldest:
            self._measure(bool(requester.done))
        self._act(requester)
        self._go_on(blocked)

    def _store(self, requester: Requester, work: SendWork, response: Response) -> None:
        parts: Sequence[Sge | bytes] = work.parts
        payload: Sequence[memoryview | bytes] = response.payload
        length, packets, original = work.length, work.packets, response.atomic_original
        if length > WHOLE_BYTES:
            length, packets = self._length(requester, work), requester.packets
            parts = stretch(parts, requester.index * self._qp.mtu, length)
        if original is None:
            fits = work.operation == READ and pieces.size(response.payload) == length
        else:
            fits = work.operation in ATOMICS and original < 1 << 8 * length
            if fits:
                # Operands travel big-endian; memory holds those of 8 bytes as the host does, and
                # shorter ones as they travel (UCX: `ext_atomic_arg_sizes_be`).
                payload = [original.to_bytes(length, "little" if length == ATOMIC_SIZE else "big")]
        if not fits:
            requester.fail(CompletionStatus.BAD_RESP_ERR)
            return
        try:
            self._qp.memory.store(parts, length, payload)
        except (AccessError, DmaError) as error:
            if not self._comes_again(requester, work, response.psn, error):
                requester.fail(CompletionStatus.LOCAL_PROT_ERR)
            return
        requester.stored(packets)

    def _note_trouble(self, requester: Requester, syndrome: int, troubles: int) -> None:
        """Tell what is sent again and why, or that it is not any more."""
        qp, code = self._qp, syndrome & 0x1F
        repeats = requester.troubles != troubles
        if requester.state is Sending.NOT_READY and syndrome & KIND == Syndrome.RNR_NAK:
            self._burst = 0
            if self._not_ready is not None:
                return
            if repeats:
                retry, delay = requester.rnr_retries, RNR_TIMER_US[code]
                qp.bus.tell(
                    Fact.NOT_READY,
                    qpn=qp.qpn,
                    retry=retry,
                    delay=delay,
                    offered=self._fast_rnr and not code,
                )
            self._not_ready = qp.port
            self._not_ready.not_ready += 1
            requester.hold(self._not_ready.not_ready * OFFER_SECONDS, code)
        elif repeats:
            self._tell_again(requester, Fact.SEQUENCE_ERROR, requester.retries)
        elif requester.failure is CompletionStatus.RNR_RETRY_EXC_ERR:
            qp.bus.tell(Fact.NOT_READY_USED_UP, qpn=qp.qpn, most=requester.limits.rnr_retries)
        elif requester.failure is CompletionStatus.TRANSPORT_RETRY_EXC_ERR:
            self._tell_again(requester, Fact.SEQUENCE_ERROR, requester.limits.retries + 1)


def _next_size(size: int, seconds: float) -> int:
    """Return the bytes that the next part may have when one of `size` bytes took `seconds` to move.

    What would take two thirds of the time at the same speed, roughly: memory differs from part to
    part, and so does what else the machine does.
    """
    if seconds > PART_SECONDS:
        return max(size // 2, LEAST_PART_BYTES)
    most = min(MOST_GROWTH * size, MOST_PART_BYTES)
    while size < most and 3 * seconds < PART_SECONDS:
        size, seconds = 2 * size, 2 * seconds
    return size
