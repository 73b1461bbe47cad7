"""The message of a requester that moves in parts, each in a turn of the server's loop.

No view is kept from one part to the next: keys and memory are looked up again for each, as an
adapter does for each packet, so a region that goes away in between fails the message.
"""

from __future__ import annotations

from time import monotonic

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Part, Payload, Request
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import PSN_MASK
from bluebridge.device.mlx4.connected.request_tables import OPS, packets_of
from bluebridge.device.mlx4.pairs.costs import (
    FIRST_PART_BYTES,
    LEAST_PART_BYTES,
    MESSAGE_COST,
    MOST_GROWTH,
    MOST_PART_BYTES,
    PART_SECONDS,
    PIECE_COST,
)
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.rings.work_requests import SendWqe
from bluebridge.device.rdma.memory.scatter_gather import READ, WRITE, stretch
from bluebridge.device.rdma.memory.transfer import note_runs


class PartSender:
    """Where the message that is under way is: one at a time.

    Its `SendWqe.psn` is the PSN of the part that is due, whose bytes begin at `_offset`. `_sent` is
    where the part began that was sent last: it is sent again when its answer does not come.
    """

    __slots__ = ("_length", "_offset", "_packets", "_qp", "_sent", "_since", "_size")

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._offset = 0
        self._length = 0
        self._packets = 0
        self._size = FIRST_PART_BYTES
        self._sent = -1
        self._since = 0.0

    def begin(self, wqe: SendWqe) -> None:
        """Turn to another message, all of whose keys are checked; raises `AccessError`."""
        right = WRITE if wqe.returns_data else READ
        self._qp.memory.check(wqe.parts, wqe.length, right)
        self._offset = 0
        self._size = FIRST_PART_BYTES
        self._sent = -1

    def request(self, wqe: SendWqe, reliable: bool, xrc: bool) -> Request:
        """The request for the part that is due; raises `AccessError`, `DmaError`."""
        qp, offset = self._qp, self._offset
        length = min(self._size, wqe.length - offset)
        again = offset == self._sent
        payload: Payload = ()
        if not wqe.returns_data:
            payload = qp.memory.gather(stretch(wqe.parts, offset, length), note=not again)
        self._sent, self._length, self._since = offset, length, monotonic()
        self._packets = packets_of(length, qp.mtu)
        qp.spent += MESSAGE_COST + PIECE_COST * len(payload) + length
        if not wqe.returns_data:
            qp.traffic.sent(self._packets, length)
        elif not offset or again:
            qp.traffic.sent(1, 0)
        return Request(
            OPS[wqe.opcode],
            qp.route,
            qp.qpn,
            qp.remote_qpn,
            wqe.psn,
            self._packets,
            length,
            payload,
            wqe.remote_address + offset,
            wqe.rkey,
            wqe.immediate,
            wqe.solicited,
            reliable,
            srqn=wqe.flags >> 8 if xrc else None,
            part=Part(
                offset,
                wqe.length,
                packets_of(wqe.length - offset, qp.mtu),
                begins=not offset or again,
                last=offset + length == wqe.length,
            ),
        )

    def take(self, wqe: SendWqe, payload: Payload) -> bool:
        """Store what an answer brings, if it belongs to a read; whether it is what was asked for.

        Raises `AccessError`, `DmaError`.
        """
        if not wqe.returns_data:
            return True
        qp, length = self._qp, self._length
        if pieces.size(payload) != length:
            return False
        runs = qp.memory.scatter(stretch(wqe.parts, self._offset, length), length)
        views = qp.bus.views(runs)
        pieces.copy(views, payload)
        note_runs(qp.bus, Kind.DMA_WRITE, runs, views, What.PAYLOAD, qp.qpn)
        qp.traffic.rx_bytes += length
        return True

    def advance(self, wqe: SendWqe) -> bool:
        """The part that was due has moved; whether it was the last."""
        wqe.psn = (wqe.psn + self._packets) & PSN_MASK
        self._offset += self._length
        self._size = _next_size(self._size, monotonic() - self._since)
        return self._offset == wqe.length


def _next_size(size: int, seconds: float) -> int:
    """How many bytes the next part may have when a part of `size` bytes took so long to move.

    What would take two thirds of the time at the same speed, roughly: memory differs from part to
    part, and so does what else the machine does.
    """
    if seconds > PART_SECONDS:
        return max(size // 2, LEAST_PART_BYTES)
    most = min(MOST_GROWTH * size, MOST_PART_BYTES)
    while size < most and 3 * seconds < PART_SECONDS:
        size, seconds = 2 * size, 2 * seconds
    return size
