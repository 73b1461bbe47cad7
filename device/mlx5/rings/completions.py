"""Completions and asynchronous events of Ethernet queues (layout: `device.layout.mlx5.cqe`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.mlx5.rings.findings import findings
from bluebridge.device.mlx5.rings.queue_completions import RESPONSE_ERROR, QueueCompletions
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.pairs.queues import Received
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

FRAME_CQE: Final = Struct(">12xIB3xH6xBBHI8xIQIHxB")

_FRAME: Final = CqeOpcode.RESPONSE_SEND << 4


class FrameCompletions(QueueCompletions):
    """The writer of the completions and asynchronous events of one SQ or RQ.

    Its entries name it by its `user_index`, which software of raw packet queue pairs looks at.
    """

    def __init__(
        self, around: Surroundings, number: int, cqn: int, kind: int, user_index: int
    ) -> None:
        super().__init__(around, number, kind, cqn, user_index)
        self._cqn = cqn

    def _sent(self, index: int, operation: int, length: int, left: int) -> bytes:
        return super()._sent(index, operation, 0, left)

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
        cqe = self._error(self._user_index, index, status, RESPONSE_ERROR)
        self._post(self._cqn, cqe, error=True)


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
