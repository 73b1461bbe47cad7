"""The common half of send engines without a connection: an entry is done when it was sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from bluebridge.device.fabric.messages import Response
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.rings.work_requests import (
    NOP,
    SEND,
    SEND_IMM,
    SendWqe,
    WqeError,
    parse_header,
)
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.rights import AccessError


class UnconnectedSender(ABC):
    """A send engine that waits for nothing; what differs is `_send`."""

    __slots__ = ("_qp", "next_psn")
    opcodes: ClassVar[frozenset[int]] = frozenset((SEND, SEND_IMM))

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self.next_psn = QPC.get(qp.context, "next_send_psn")  # told by QUERY_QP, not used

    def execute(self, raw: bytes, index: int) -> None:
        """Send one message, or complete the entry in error."""
        try:
            wqe = parse_header(raw, index)
            if wqe.opcode in self.opcodes:
                self._send(wqe, raw)
            elif wqe.opcode != NOP:
                raise WqeError(f"opcode {wqe.opcode:#x}")
        except WqeError as error:
            self._fail(index, error.status, error)
        except (AccessError, DmaError) as fault:
            self._fail(index, CompletionStatus.LOCAL_PROT_ERR, fault)
        else:
            if wqe.signalled:
                self._qp.completions.complete_send(index, wqe.opcode, wqe.length)

    @property
    def idle(self) -> bool:
        """No message waits for an answer."""
        return True

    def receive(self, response: Response) -> None:  # noqa: B027 (no request, so no answer)
        """Answers are for connected queue pairs: ignored."""

    def blocked(self) -> bool:
        """Messages wait for nothing."""
        return False

    def abort(self) -> None:  # noqa: B027 (nothing to do is the answer, not a gap)
        """Nothing is ever outstanding."""

    def finish(self) -> None:  # noqa: B027
        """Nothing is ever collected."""

    def stop(self) -> None:  # noqa: B027
        """Nothing is ever outstanding."""

    def close(self) -> None:  # noqa: B027
        """It has no parts that refer to it."""

    @abstractmethod
    def _send(self, wqe: SendWqe, raw: bytes) -> None:
        """Send the message of a SEND; raises `WqeError`, `AccessError` or `DmaError`."""

    def _fail(self, index: int, status: CompletionStatus, error: Exception) -> None:
        qp = self._qp
        qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {index}: {error}", obj=qp.qpn)
        qp.completions.fail_send(index, status)
        qp.enter_send_error()
