"""The receiving of Ethernet frames: whom steering gives them to, tags, rings.

Linux `en_rx.c: mlx4_en_process_rx_cq`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.receiving import TrainForms
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_MAC_CONTROL,
    ETHERTYPE_ROCE,
    HEADER_SIZE,
    VLAN_TAG_TYPES,
)
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.scatter_gather import WRITE, note_runs
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import CUSTOMER_TAG, NO_TAG, SERVICE_TAG, Received
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.steering import Delivery, Steering
from bluebridge.device.rdma.vocabulary import RECEIVING, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

Plan = list[tuple[bytes, Sequence[Run]]]
"""Frames, each with the memory it goes to."""

TAG_BYTES: Final = 2
_TYPE_OFFSET: Final = 12
_ROCE: Final = ETHERTYPE_ROCE.to_bytes(2, "big")
_MAC_CONTROL: Final = ETHERTYPE_MAC_CONTROL.to_bytes(2, "big")
TAG_KINDS: Final = dict(zip(VLAN_TAG_TYPES, (CUSTOMER_TAG, SERVICE_TAG), strict=True))


class Batch:
    """Frames for the ring of `qp`, with what completions tell of them."""

    __slots__ = ("_frames", "_received", "qp")

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self._frames: list[bytes] = []
        self._received: list[Received] = []

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frames: list[bytes], received: Received) -> None:
        """Append frames of one flow."""
        self._frames += frames
        self._received += [received] * len(frames)

    def append(self, other: Batch, room: int) -> int:
        """Append another batch of the ring while there is room; returns how many were left."""
        self._frames += other._frames[:room]
        self._received += other._received[:room]
        return max(0, len(other) - room)

    def deliver(self) -> int:
        """Scatter frames as far as receives are posted; returns how many of these were lost."""
        try:
            entries = self._take(len(self._frames))
        except DmaError:
            entries = []
        pairs = list(zip(entries, self._frames, strict=False))
        start = lost = 0
        while start < len(pairs):
            end = start + self._store(pairs[start:])
            self.qp.completions.complete_frames(pairs[start:end], self._received[start:end])
            start = end
            if start < len(pairs):
                refused = self._refuse(pairs[start:])
                start += refused
                lost += refused
        del self._frames[:start], self._received[:start]
        return lost

    def _take(self, count: int) -> list[ReceiveWork]:
        queue = self.qp.receives
        return [] if queue is None else queue.take_many(count)

    def _store(self, pairs: list[tuple[ReceiveWork, bytes]]) -> int:
        """Copy frames into their buffers, up to the first that fails; returns their number."""
        qp, bus, plan = self.qp, self.qp.bus, self._plan(pairs)
        runs = [run for _, own in plan for run in own]
        try:
            views = bus.views(runs)
        except DmaError:
            return self._store_up_to_it(plan)
        pieces.copy(views, [frame for frame, _ in plan])
        note_runs(bus, Kind.DMA_WRITE, runs, views, What.FRAME, qp.qpn)
        return len(plan)

    def _plan(self, pairs: list[tuple[ReceiveWork, bytes]]) -> Plan:
        """Return each frame's memory, up to the first whose receive is too small or forbidden."""
        plan: Plan = []
        qp = self.qp
        known: dict[int, bool] = {}
        for entry, frame in pairs:
            length, sges = len(frame), entry.sges
            if not _fits(entry, length):
                break
            lkey, address, room = sges[0]
            if lkey not in known:
                known[lkey] = qp.regions.is_everything(lkey, WRITE, entry.pd)
            if room >= length and known[lkey]:
                plan.append((frame, [(address, length)]))
                continue
            try:
                plan.append((frame, qp.memory.scatter(sges, length, entry.pd)))
            except AccessError as error:
                qp.bus.tell(Fact.RECEIVE_FAILED, qpn=qp.qpn, reason=str(error))
                break
        return plan

    def _store_up_to_it(self, plan: Plan) -> int:
        """Copy frames up to the first for which there is no memory; returns their number."""
        qp, bus = self.qp, self.qp.bus
        for count, (frame, runs) in enumerate(plan):
            try:
                views = bus.views(runs)
            except DmaError as error:
                bus.tell(Fact.RECEIVE_FAILED, qpn=qp.qpn, reason=str(error))
                return count
            pieces.copy(views, [frame])
            note_runs(bus, Kind.DMA_WRITE, runs, views, What.FRAME, qp.qpn)
        return len(plan)

    def _refuse(self, pairs: list[tuple[ReceiveWork, bytes]]) -> int:
        """Complete the first receive in error; returns how many frames are done with.

        A receive that is too small costs its frame. One that names forbidden memory is the end of
        the ring: it and all receives that were taken with it are lost.
        """
        qp = self.qp
        entry, frame = pairs[0]
        if not _fits(entry, len(frame)):
            qp.completions.fail_receive(entry.index, CompletionStatus.LOCAL_LENGTH_ERR)
            return 1
        qp.completions.fail_receive(entry.index, CompletionStatus.LOCAL_PROT_ERR)
        for entry, _ in pairs[1:]:
            qp.completions.fail_receive(entry.index, CompletionStatus.WR_FLUSH_ERR)
        qp.enter_error()
        return len(pairs)


def _fits(entry: ReceiveWork, length: int) -> bool:
    """Return True if the scatter list of a receive holds `length` bytes."""
    sges = entry.sges
    if sges and sges[0][2] >= length:
        return True
    return length <= sum(sge[2] for sge in sges)


class FrameReceiver:
    """Gives the frames of the fabric to the queue pairs of one HCA, as its `steering` decides.

    `find` returns the queue pair with a number, None without one; `tags` are those that may be
    taken off, with their kinds, by the two bytes that they begin with.
    """

    def __init__(
        self,
        find: Callable[[int], QueuePair | None],
        steering: Steering,
        tags: Mapping[bytes, int] = TAG_KINDS,
    ) -> None:
        self._find = find
        self._steering = steering
        self._tags = tags

    def receive(self, port: Port, message: Frames) -> int:
        """Deliver frames that came in by `port` to the queue pairs that steering names.

        Returns in how many receive rings they were wanted, each frame counted once per ring.
        """
        copies, arrived = 0, monotonic_ns()
        batches: dict[int, Batch] = {}
        for train in message.trains:
            first = train.frames[0]
            kind = first[_TYPE_OFFSET:HEADER_SIZE]
            if len(first) < HEADER_SIZE or kind == _ROCE:
                continue
            if kind == _MAC_CONTROL and not message.mirrored:
                port.flow.receive(first)
                continue
            headers = FrameHeaders(first)
            deliveries = self._steering.frame(port, train, headers, message)
            copies += len(deliveries) * len(train.frames)
            if not message.mirrored:
                port.counters.receive(train.frames, wanted=bool(deliveries))
            forms = TrainForms(train.frames)
            for delivery in deliveries:
                self._assign(port, train, forms, headers, delivery, arrived, batches)
        for number, batch in batches.items():
            lost = port.flow.accept(batch)
            if lost:
                self._steering.miss(number, lost)
        return copies

    def _assign(
        self,
        port: Port,
        train: Train,
        forms: TrainForms,
        headers: FrameHeaders,
        delivery: Delivery,
        arrived: int,
        batches: dict[int, Batch],
    ) -> None:
        """Put a train that `arrived` then into the batch of its ring."""
        first, number = train.frames[0], delivery.qpn
        qp = self._receiving(number)
        if qp is None:
            port.counters.rx.dropped += len(train.frames)
            return
        batch = batches.get(number)
        if batch is None:
            batch = batches[number] = Batch(qp)
        kind, tag = self._tags.get(first[_TYPE_OFFSET:HEADER_SIZE], NO_TAG), 0
        if kind != NO_TAG:
            tag = int.from_bytes(first[HEADER_SIZE : HEADER_SIZE + TAG_BYTES], "big")
        strip = kind != NO_TAG and qp.strip_vlan
        received = Received(
            first, headers, train.good, kind, tag, strip,
            delivery.hash, delivery.hash_type, delivery.mark, arrived,
        )  # fmt: skip
        batch.add(forms.frames(strip, qp.keep_fcs), received)

    def _receiving(self, number: int) -> QueuePair | None:
        """Return the queue pair with that number if its state lets it receive, else None."""
        qp = self._find(number)
        return qp if qp is not None and qp.state in RECEIVING else None
