"""Completions and asynchronous events of Ethernet queues (layout: `device.layout.mlx5.cqe`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.cqe import CQE, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.mlx5.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.findings import findings
from bluebridge.device.mlx5.rings.work_requests import OPCODES
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import Completions, Received
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

SEND_CQE: Final = Struct(">48xQIHxB")
FRAME_CQE: Final = Struct(">12xIB3xH6xBBH12xIQIHxB")
ERROR_CQE: Final = Struct(">54xBBIHxB")

_REQUEST: Final = CqeOpcode.REQUEST << 4
_FRAME: Final = CqeOpcode.RESPONSE_SEND << 4
_REQUEST_ERROR: Final = CqeOpcode.REQUEST_ERROR << 4
_RESPONSE_ERROR: Final = CqeOpcode.RESPONSE_ERROR << 4
_ERRORS: Final = (CqeOpcode.REQUEST_ERROR, CqeOpcode.RESPONSE_ERROR)
_SYNDROMES: Final = {status: int(Syndrome[status.name]) for status in CompletionStatus}
_EVENTS: Final = {
    AsyncEvent.COMM_EST: EventType.COMMUNICATION_ESTABLISHED,
    AsyncEvent.SQ_DRAINED: EventType.SQ_DRAINED,
    AsyncEvent.WQ_CATAS_ERROR: EventType.WQ_CATASTROPHIC,
    AsyncEvent.WQ_INVALID_REQUEST: EventType.WQ_INVALID_REQUEST,
    AsyncEvent.WQ_ACCESS_ERROR: EventType.WQ_ACCESS_ERROR,
    AsyncEvent.SRQ_QP_LAST_WQE: EventType.LAST_WQE,
}
RQ_EVENT, SQ_EVENT = 1, 2
"""Kinds of queues in events about them."""


class FrameCompletions(Completions):
    """The writer of the completions and asynchronous events of one SQ or RQ.

    A completion queue that does not exist when a completion is due costs a line in the log. One
    that takes no entry any more calls `lost`, later, in the server's loop.
    """

    def __init__(
        self,
        bus: HostBus,
        cqs: CompletionQueues,
        eqs: EventQueues,
        number: int,
        cqn: int,
        kind: int,
        faults: ArmedFaults,
    ) -> None:
        self._faults = faults
        self._bus = bus
        self._cqs = cqs
        self._eqs = eqs
        self._number = number
        self._cqn = cqn
        self._kind = kind
        self._losing = False
        self._collected: list[tuple[int, int]] = []

    # -- sends --------------------------------------------------------------------------------

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._bus.concern(self._number, index)
        self._post_many([self._sent(index, operation, left or monotonic_ns())])

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self._bus.concern(self._number, index)
        self.diagnostics.send_failed(status)
        self._post(self._error(index, status, _REQUEST_ERROR))

    def collect_send(self, index: int, operation: int, length: int) -> None:
        self._collected.append((index, operation))

    def post_collected(self, left: int = 0) -> None:
        collected, self._collected = self._collected, []
        left = left or monotonic_ns()
        self._post_many([self._sent(index, operation, left) for index, operation in collected])

    def forget_collected(self) -> None:
        self._collected = []

    def _sent(self, index: int, operation: int, left: int) -> bytes:
        about = OPCODES[operation] << 24 | self._number
        return SEND_CQE.pack(left, about, index & 0xFFFF, _REQUEST)

    # -- receives -----------------------------------------------------------------------------

    def complete_receive(
        self,
        index: int,
        op: Op,
        length: int,
        source: int,
        immediate: int,
        solicited: bool,
        cqn: int = -1,
    ) -> None:
        """Do nothing: no peer is connected to these queues."""

    def complete_datagram(
        self,
        index: int,
        message: Datagram,
        link: LinkLayer,
        path_bits: int,
        pkey_index: int,
        found: tuple[int, int] | None,
    ) -> None:
        """Do nothing: these queues have frames only."""

    def complete_frames(
        self, receives: Sequence[tuple[ReceiveWork, bytes]], received: Sequence[Received]
    ) -> None:
        entries = []
        told, sums = None, {0: (0, 0)}  # frames of one flow and length have one sum
        for (work, frame), known in zip(receives, received, strict=True):
            if known is not told or not known.good:
                told, sums = known, {}
            found = sums.get(len(frame))
            if found is None:
                found = sums[len(frame)] = findings(frame, FrameHeaders(frame), known.good)
            entries.append(frame_cqe(work.index, len(frame), known, *found))
        self._post_many(entries)

    def fail_receive(self, index: int, status: CompletionStatus, cqn: int = -1) -> None:
        self.diagnostics.receive_failed(status)
        self._post(self._error(index, status, _RESPONSE_ERROR))

    # -- both ---------------------------------------------------------------------------------

    def event(self, event: AsyncEvent) -> None:
        eqe = QUEUE_EQE.pack(kind=self._kind, number=self._number)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(_EVENTS[event], data)

    def _error(self, index: int, status: CompletionStatus, opcode: int) -> bytes:
        return ERROR_CQE.pack(0, _SYNDROMES[status], self._number, index & 0xFFFF, opcode)

    def _post(self, cqe: bytes) -> None:
        """Write the entry of an error."""
        if self._faults.completions and self._faults.has_completion(self._number):
            self._post_faulty(cqe)
        else:
            self._write([cqe], error=True)

    def _post_many(self, entries: list[bytes]) -> None:
        if self._faults.completions and self._faults.has_completion(self._number):
            for entry in entries:
                self._post_faulty(entry)
        else:
            self._write(entries)

    def _post_faulty(self, cqe: bytes) -> None:
        """Write what the armed faults make of an entry, now and later."""
        for seconds, entry in self._faults.completion(self._number, cqe):
            if seconds:
                self._write_later(seconds, entry)
            else:
                self._write([entry], error=CQE.get(entry, "opcode") in _ERRORS)

    def _write_later(self, seconds: float, cqe: bytes) -> None:
        """Write an entry then, unless the queue is gone: drivers know no other number."""
        queue = self._cqs.get(self._cqn)

        def write() -> None:
            alive = self._faults.role_of(self._number) is not None
            if alive and self._cqs.get(self._cqn) is queue:
                self._write([cqe])

        self._bus.call_later(seconds, write)

    def _write(self, entries: list[bytes], *, error: bool = False) -> None:
        queue = self._cqs.get(self._cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=self._cqn)
            return
        if error:
            queue.post(entries[0], error=True)
        else:
            queue.post_many(entries)
        if queue.broken:
            self._lose()

    def _lose(self) -> None:
        """Tell the queue later of a lost completion, as its engines are busy now."""
        if not self._losing:
            self._losing = True
            self._bus.call_soon(self._tell_loss)

    def _tell_loss(self) -> None:
        self._losing = False
        self.lost()


def frame_cqe(index: int, length: int, received: Received, found: int, checksum: int) -> bytes:
    """Return the completion entry of a frame of `length` bytes.

    `found` is what is right (`Checked`) with the headers above it, `checksum` the sum.
    """
    return FRAME_CQE.pack(
        received.hash,
        received.hash_type,
        checksum,
        found & 0xFF,
        (found >> 8 & 0xFF) | received.stripped,
        received.tag if received.stripped else 0,
        length,
        received.arrived,
        received.mark,
        index & 0xFFFF,
        _FRAME,
    )
