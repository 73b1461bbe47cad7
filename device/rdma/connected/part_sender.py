"""The sending of a requester's long message in parts, one part per turn of the server's loop.

No view is kept from one part to the next: keys and memory are looked up again for each, as an
adapter does for each packet, so a region that goes away in between fails the message.
"""

from __future__ import annotations

from time import monotonic

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Part, Payload, Request
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.layout.net.roce import PSN_MASK
from bluebridge.device.rdma.connected.retry import packets_of
from bluebridge.device.rdma.memory.scatter_gather import READ, WRITE, stretch
from bluebridge.device.rdma.pairs.costs import (
    FIRST_PART_BYTES,
    LEAST_PART_BYTES,
    MESSAGE_COST,
    MOST_GROWTH,
    MOST_PART_BYTES,
    PART_SECONDS,
    PIECE_COST,
)
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import OPS
from bluebridge.device.rdma.work import SendWork


class PartSender:
    """The position in the one message of a requester that is being sent in parts.

    Its `SendWork.psn` is the PSN of the part that is due, whose bytes begin at `_offset`. `_sent`
    is where the part began that was sent last: it is sent again when its answer does not come.
    """

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._offset = 0
        self._length = 0
        self._packets = 0
        self._size = FIRST_PART_BYTES
        self._sent = -1
        self._since = 0.0

    def begin(self, work: SendWork) -> None:
        """Begin to send a message, all of whose keys are checked first; raises `AccessError`."""
        right = WRITE if work.returns_data else READ
        self._qp.memory.check(work.parts, work.length, right)
        self._offset = 0
        self._size = FIRST_PART_BYTES
        self._sent = -1

    def request(self, work: SendWork, reliable: bool, xrc: bool) -> Request:
        """Return the request for the part that is due; raises `AccessError`, `DmaError`."""
        qp, offset = self._qp, self._offset
        length = min(self._size, work.length - offset)
        again = offset == self._sent
        payload: Payload = ()
        if not work.returns_data:
            payload = qp.memory.gather(stretch(work.parts, offset, length), note=not again)
        self._sent, self._length, self._since = offset, length, monotonic()
        self._packets = packets_of(length, qp.mtu)
        qp.spent += MESSAGE_COST + PIECE_COST * len(payload) + length
        request = Request(
            OPS[work.operation],
            qp.route,
            qp.qpn,
            qp.remote_qpn,
            work.psn,
            self._packets,
            length,
            payload,
            work.remote_address + offset,
            work.rkey,
            work.immediate,
            work.solicited,
            reliable,
            srqn=work.srqn if xrc else None,
            part=Part(
                offset,
                work.length,
                packets_of(work.length - offset, qp.mtu),
                begins=not offset or again,
                last=offset + length == work.length,
            ),
        )
        packets, size = size_of(request)
        qp.traffic.sent(packets, size)
        return request

    def take(self, work: SendWork, payload: Payload) -> bool:
        """Store the data of a read's answer; returns False when their length is wrong.

        Raises `AccessError`, `DmaError`.
        """
        if not work.returns_data:
            return True
        qp, length = self._qp, self._length
        if pieces.size(payload) != length:
            return False
        qp.memory.store(stretch(work.parts, self._offset, length), length, payload)
        return True

    def advance(self, work: SendWork) -> bool:
        """Go on to the next part; returns True when the part that has moved was the last."""
        work.psn = (work.psn + self._packets) & PSN_MASK
        self._offset += self._length
        self._size = _next_size(self._size, monotonic() - self._since)
        return self._offset == work.length


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
