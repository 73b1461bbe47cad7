"""Completions and asynchronous events of Ethernet queues (layout: `device.layout.mlx5.cqe`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.mlx5.cqe import VENDOR_SYNDROMES, CqeOpcode, Syndrome
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.mlx5.rings.findings import findings
from bluebridge.device.mlx5.rings.queue_completions import QueueCompletions
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.rings.work_requests import OPCODES
from bluebridge.device.rdma.pairs.queues import Received
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

SEND_CQE: Final = Struct(">32xI12xQIHxB")
FRAME_CQE: Final = Struct(">12xIB3xH6xBBHI8xIQIHxB")
ERROR_CQE: Final = Struct(">32xI18xBBIHxB")

_REQUEST: Final = CqeOpcode.REQUEST << 4
_FRAME: Final = CqeOpcode.RESPONSE_SEND << 4
_REQUEST_ERROR: Final = CqeOpcode.REQUEST_ERROR << 4
_RESPONSE_ERROR: Final = CqeOpcode.RESPONSE_ERROR << 4
_ERRORS: Final = {
    status: (VENDOR_SYNDROMES[Syndrome[status.name]], int(Syndrome[status.name]))
    for status in CompletionStatus
}


class FrameCompletions(QueueCompletions):
    """The writer of the completions and asynchronous events of one SQ or RQ.

    Its entries name it by its `user_index`, which software of raw packet queue pairs looks at.
    """

    def __init__(
        self, around: Surroundings, number: int, cqn: int, kind: int, user_index: int
    ) -> None:
        super().__init__(around, number, kind)
        self._cqn = cqn
        self._user_index = user_index
        self._collected: list[tuple[int, int]] = []

    # -- sends --------------------------------------------------------------------------------

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._bus.concern(self._number, index)
        self._post_many(self._cqn, [self._sent(index, operation, left or monotonic_ns())])

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self._bus.concern(self._number, index)
        self.diagnostics.send_failed(status)
        self._post(self._cqn, self._error(index, status, _REQUEST_ERROR), error=True)

    def collect_send(self, index: int, operation: int, length: int) -> None:
        self._collected.append((index, operation))

    def post_collected(self, left: int = 0) -> None:
        collected, self._collected = self._collected, []
        left = left or monotonic_ns()
        self._post_many(
            self._cqn, [self._sent(index, operation, left) for index, operation in collected]
        )

    def forget_collected(self) -> None:
        self._collected = []

    def _sent(self, index: int, operation: int, left: int) -> bytes:
        about = OPCODES[operation] << 24 | self._number
        return SEND_CQE.pack(self._user_index, left, about, index & 0xFFFF, _REQUEST)

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
            entries.append(frame_cqe(work.index, len(frame), known, *found, self._user_index))
        self._post_many(self._cqn, entries)

    def fail_receive(
        self, index: int, status: CompletionStatus, cqn: int = -1, source: int = 0
    ) -> None:
        self.diagnostics.receive_failed(status)
        self._post(self._cqn, self._error(index, status, _RESPONSE_ERROR), error=True)

    def _error(self, index: int, status: CompletionStatus, opcode: int) -> bytes:
        vendor, syndrome = _ERRORS[status]
        return ERROR_CQE.pack(
            self._user_index, vendor, syndrome, self._number, index & 0xFFFF, opcode
        )


def frame_cqe(
    index: int, length: int, received: Received, found: int, checksum: int, user_index: int
) -> bytes:
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
        user_index,
        length,
        received.arrived,
        received.mark,
        index & 0xFFFF,
        _FRAME,
    )
