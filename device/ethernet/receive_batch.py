"""Frames for one receive ring, which are scattered together and completed with one event."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.rdma.memory.rights import AccessError
from bluebridge.device.rdma.memory.scatter_gather import WRITE
from bluebridge.device.rdma.memory.transfer import note_runs
from bluebridge.device.rdma.pairs.completions import Verdict
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

Plan = list[tuple[bytes, Sequence[Run]]]
"""Frames, each with the memory it goes to."""


class Batch:
    """Frames for the ring of `qp`, with the verdicts for their completions."""

    __slots__ = ("_frames", "_verdicts", "qp")

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self._frames: list[bytes] = []
        self._verdicts: list[Verdict] = []

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frames: list[bytes], verdict: Verdict) -> None:
        """Append frames of one flow."""
        self._frames += frames
        self._verdicts += [verdict] * len(frames)

    def append(self, other: Batch, room: int) -> int:
        """Append another batch of the ring while there is room; returns how many were left."""
        self._frames += other._frames[:room]
        self._verdicts += other._verdicts[:room]
        return max(0, len(other) - room)

    def deliver(self) -> int:
        """Scatter frames and complete their receives; returns how many were lost.

        Those for which no receive is posted stay in the batch.
        """
        try:
            entries = self._take(len(self._frames))
        except DmaError:
            entries = []
        pairs = list(zip(entries, self._frames, strict=False))
        start = lost = 0
        while start < len(pairs):
            end = start + self._store(pairs[start:])
            self.qp.completions.complete_frames(pairs[start:end], self._verdicts[start:end])
            start = end
            if start < len(pairs):
                refused = self._refuse(pairs[start:])
                start += refused
                lost += refused
        del self._frames[:start], self._verdicts[:start]
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
                qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} receive: {error}", obj=qp.qpn)
                break
        return plan

    def _store_up_to_it(self, plan: Plan) -> int:
        """Copy frames up to the first for which there is no memory; returns their number."""
        qp, bus = self.qp, self.qp.bus
        for count, (frame, runs) in enumerate(plan):
            try:
                views = bus.views(runs)
            except DmaError as error:
                bus.note(Kind.NOTE, f"QP {qp.qpn:#x} receive: {error}", obj=qp.qpn)
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
