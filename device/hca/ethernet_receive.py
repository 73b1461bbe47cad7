"""Ethernet frames in: steering, receive side scaling, checksum verdicts, the rings.

Linux `en_rx.c: mlx4_en_process_rx_cq`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device.fabric.messages import Frames, Train
from device.hca.completion import (
    SERVICE_VLAN_PRESENT,
    VLAN_PRESENT,
    fail_receive,
    frame_cqe,
    post_many,
)
from device.hca.copy import copy_views, note_runs
from device.hca.ethernet import EthernetSender
from device.hca.flush import enter_error
from device.hca.local_memory import scatter_runs
from device.hca.memory_regions import AccessError
from device.hca.packet import TCP, UDP, Packet
from device.hca.receive_queue import ReceiveQueue, ReceiveWqe
from device.hca.steering import TAG_TYPES, targets
from device.layout.buslog import Kind, What
from device.layout.mlx4.contexts import QpState
from device.layout.mlx4.cqe import CHECKSUM_GOOD, L4_CHECKED, FrameStatus, Syndrome
from device.layout.net.ethernet import ETHERTYPE_ROCE, HEADER_SIZE
from device.pci.bus import DmaError, Run

if TYPE_CHECKING:
    from device.hca.device import Hca
    from device.hca.port import Port
    from device.hca.qp import QueuePair

_TYPE_OFFSET = 12
_TAG_SIZE = 4
_ROCE = ETHERTYPE_ROCE.to_bytes(2, "big")
_TAG_BITS = dict(zip(TAG_TYPES, (VLAN_PRESENT, SERVICE_VLAN_PRESENT), strict=True))
_RECEIVING = (QpState.RTR, QpState.RTS, QpState.SQD)
_GOOD = (L4_CHECKED, CHECKSUM_GOOD)
_UNKNOWN = (0, 0)
_IPV4, _IPV6 = int(FrameStatus.IPV4), int(FrameStatus.IPV6)
_FRAGMENT, _OPTIONS = int(FrameStatus.IPV4_FRAGMENT), int(FrameStatus.IPV4_OPTIONS)
_IP_OK = int(FrameStatus.IP_OK)
_TRANSPORT = {TCP: int(FrameStatus.TCP), UDP: int(FrameStatus.UDP)}


def receive_frames(hca: Hca, port: Port, message: Frames) -> None:
    """Frames of the fabric: to the queue pairs that steering names, or dropped."""
    batches: dict[int, Batch] = {}
    for train in message.trains:
        first = train.frames[0]
        if len(first) < HEADER_SIZE or first[_TYPE_OFFSET:HEADER_SIZE] == _ROCE:
            continue
        numbers = targets(hca, port, first)
        port.counters.receive(train.frames, wanted=bool(numbers))
        for number in numbers:
            _assign(hca, port, train, number, batches)
    for batch in batches.values():
        port.counters.rx.dropped += batch.deliver()


def _assign(hca: Hca, port: Port, train: Train, number: int, batches: dict[int, Batch]) -> None:
    """Put a train into the batch of its ring."""
    packet = Packet(train.frames[0])
    qp, value = hca.qps.get(number), 0
    if qp is not None and isinstance(qp.engine, EthernetSender) and qp.engine.spreader:
        value, number = qp.engine.spreader.choose(train.frames[0], packet)
        qp = hca.qps.get(number)
    if qp is None or qp.state not in _RECEIVING:
        port.counters.rx.dropped += len(train.frames)
        return
    batch = batches.get(number)
    if batch is None:
        batch = batches[number] = Batch(qp)
    batch.add(train, packet, value)


class Batch:
    """Frames on their way into one ring, with what their completions will say."""

    __slots__ = ("_frames", "_qp", "_verdicts")

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._frames: list[bytes] = []
        self._verdicts: list[tuple[tuple[int, int], int, tuple[int, int], int]] = []

    def add(self, train: Train, packet: Packet, rss_hash: int) -> None:
        """Append the frames of a train; `packet` are the headers of its first one."""
        frames, first = train.frames, train.frames[0]
        status = _status(packet, train.good or packet.header_is_good(first))
        good = train.good or packet.transport_is_good(first)
        tag = _tag(first) if self._qp.strip_vlan else (0, 0)
        if tag[0]:
            cut = _TYPE_OFFSET + _TAG_SIZE
            frames = [frame[:_TYPE_OFFSET] + frame[cut:] for frame in frames]
        self._frames += frames
        verdict = (tag, status, _GOOD if good else _UNKNOWN, rss_hash)
        self._verdicts += [verdict] * len(frames)

    def deliver(self) -> int:
        """Scatter the frames, complete the receives; returns how many were lost."""
        try:
            entries = self._take(len(self._frames))
        except DmaError:
            entries = []
        pairs = list(zip(entries, self._frames, strict=False))
        start, lost = 0, len(self._frames) - len(pairs)
        while start < len(pairs):
            end = start + self._store(pairs[start:])
            self._complete(pairs, start, end)
            start = end
            if start < len(pairs):
                refused = self._refuse(pairs[start:])
                start += refused
                lost += refused
        return lost

    def _complete(self, pairs: list[tuple[ReceiveWqe, bytes]], start: int, end: int) -> None:
        qp, verdicts = self._qp, self._verdicts
        entries = [
            frame_cqe(qp.qpn, pairs[at][0].index, len(pairs[at][1]), *verdicts[at])
            for at in range(start, end)
        ]
        post_many(qp.hca, qp.qpn, qp.recv_cqn, entries)

    def _take(self, count: int) -> list[ReceiveWqe]:
        queue = self._qp.receives
        if isinstance(queue, ReceiveQueue):
            return queue.take_many(count)
        entries: list[ReceiveWqe] = []
        while queue is not None and len(entries) < count:
            entry = queue.take()
            if entry is None:
                break
            entries.append(entry)
        return entries

    def _store(self, pairs: list[tuple[ReceiveWqe, bytes]]) -> int:
        """Copy frames into their buffers, up to the first that does not go; how many went."""
        qp, bus, plan = self._qp, self._qp.hca.bus, self._plan(pairs)
        runs = [run for _, own in plan for run in own]
        try:
            views = bus.views(runs)
        except DmaError:
            views = []
        if len(views) != len(runs):  # borders between regions of memory, or none there
            return self._store_slowly(plan)
        at = 0
        for frame, own in plan:
            if len(own) == 1:
                views[at][:] = frame
            else:
                start = 0
                for view in views[at : at + len(own)]:
                    view[:] = frame[start : start + len(view)]
                    start += len(view)
            at += len(own)
        note_runs(bus, Kind.DMA_WRITE, runs, views, What.FRAME, qp.qpn)
        return len(plan)

    def _plan(self, pairs: list[tuple[ReceiveWqe, bytes]]) -> list[tuple[bytes, list[Run]]]:
        """Where each frame goes, up to the first whose receive is too small or not its own."""
        plan: list[tuple[bytes, list[Run]]] = []
        qp = self._qp
        for entry, frame in pairs:
            length = len(frame)
            if not _fits(entry, length):
                break
            try:
                plan.append((frame, scatter_runs(qp, entry.sges, length, entry.pd)))
            except AccessError as error:
                qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} receive: {error}", obj=qp.qpn)
                break
        return plan

    def _store_slowly(self, plan: list[tuple[bytes, list[Run]]]) -> int:
        qp, bus = self._qp, self._qp.hca.bus
        for count, (frame, runs) in enumerate(plan):
            try:
                views = bus.views(runs)
            except DmaError as error:
                bus.note(Kind.NOTE, f"QP {qp.qpn:#x} receive: {error}", obj=qp.qpn)
                return count
            copy_views(views, [memoryview(frame)])
            note_runs(bus, Kind.DMA_WRITE, runs, views, What.FRAME, qp.qpn)
        return len(plan)

    def _refuse(self, pairs: list[tuple[ReceiveWqe, bytes]]) -> int:
        """Complete the first receive in error; how many are done with.

        One that is too small costs its frame. One that names memory it may not is the end of the
        ring: it and all that were taken with it.
        """
        qp = self._qp
        entry, frame = pairs[0]
        if not _fits(entry, len(frame)):
            fail_receive(qp, entry.index, Syndrome.LOCAL_LENGTH_ERR)
            return 1
        fail_receive(qp, entry.index, Syndrome.LOCAL_PROT_ERR)
        for entry, _ in pairs[1:]:
            fail_receive(qp, entry.index, Syndrome.WR_FLUSH_ERR)
        enter_error(qp)
        return len(pairs)


def _fits(entry: ReceiveWqe, length: int) -> bool:
    """Whether the scatter list of a receive holds `length` bytes."""
    sges = entry.sges
    if sges and sges[0][2] >= length:
        return True
    return length <= sum(sge[2] for sge in sges)


def _tag(frame: bytes) -> tuple[int, int]:
    """The bit and the value of the outermost VLAN tag; zeros without one."""
    bit = _TAG_BITS.get(frame[_TYPE_OFFSET:HEADER_SIZE], 0)
    return (bit, int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 2], "big")) if bit else (0, 0)


def _status(packet: Packet, header_good: bool) -> int:
    if not packet.version:
        return 0
    if packet.version == 4:
        status = _IPV4 | (_FRAGMENT if packet.fragment else 0) | packet.options * _OPTIONS
    else:
        status = _IPV6
    if packet.whole:
        status |= _TRANSPORT[packet.protocol]
    return status | (_IP_OK if header_good else 0)
