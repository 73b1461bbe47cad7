"""The common half of send engines without a connection: an entry is done when it was sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from bluebridge.device.hca.memory.regions import AccessError
from bluebridge.device.hca.pairs.error_state import enter_send_error
from bluebridge.device.hca.rings.completions import complete_send, fail_send
from bluebridge.device.hca.rings.work_requests import (
    NOP,
    SEND,
    SEND_IMM,
    SendWqe,
    WqeError,
    parse_header,
)
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.pci.bus import DmaError

if TYPE_CHECKING:
    from bluebridge.device.hca.queue_pairs import QueuePair


class UnconnectedSender(ABC):
    """A send engine that waits for nothing; what differs is `_send`."""

    __slots__ = ("_qp",)

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp

    def execute(self, raw: bytes, index: int) -> None:
        """Send one message, or complete the entry in error."""
        try:
            wqe = parse_header(raw, index)
            if wqe.opcode in (SEND, SEND_IMM):
                self._send(wqe, raw)
            elif wqe.opcode != NOP:
                raise WqeError(f"opcode {wqe.opcode:#x}")
        except WqeError as error:
            self._fail(index, error.status, error)
        except (AccessError, DmaError) as error:
            self._fail(index, CompletionStatus.LOCAL_PROT_ERR, error)
        else:
            if wqe.signalled:
                complete_send(self._qp, index, wqe.opcode, wqe.length)

    def blocked(self) -> bool:
        """Messages wait for nothing."""
        return False

    def abort(self) -> None:  # noqa: B027 (nothing to do is the answer, not a gap)
        """Nothing is ever outstanding."""

    def finish(self) -> None:  # noqa: B027
        """Nothing is ever collected."""

    def stop(self) -> None:  # noqa: B027
        """Nothing is ever outstanding."""

    @abstractmethod
    def _send(self, wqe: SendWqe, raw: bytes) -> None:
        """Send the message of a SEND; raises `WqeError`, `AccessError` or `DmaError`."""

    def _fail(self, index: int, status: CompletionStatus, error: Exception) -> None:
        qp = self._qp
        qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {index}: {error}", obj=qp.qpn)
        fail_send(qp, index, status)
        enter_send_error(qp)
