"""Completion entries of a ConnectX-5 as faults by name want them (`device.layout.mlx5.cqe`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.armed_faults import FOREIGN_QPN
from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, CqeOpcode
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from bluebridge.device.mlx5.rings.message_requests import SEND_OPCODES

_ERRORS: Final = (CqeOpcode.REQUEST_ERROR, CqeOpcode.RESPONSE_ERROR)


class FaultyEntries:
    """The form of entries."""

    def operation(self, cqe: bytes) -> str:
        """Return the name in verbs of the operation that is complete; empty for a failed one."""
        code = CQE.get(cqe, "opcode")
        if code in _ERRORS:
            return ""
        if code == CqeOpcode.REQUEST:
            return ibverbs.operation(SendOpcode(CQE.get(cqe, "wqe_opcode")).name)
        written = code == CqeOpcode.RESPONSE_WRITE_IMM
        return ibverbs.RECEIVE_WRITE if written else ibverbs.RECEIVE

    def posted(self, operation: int) -> str:
        """Return the name in verbs of an operation of engines."""
        return ibverbs.operation(SendOpcode(SEND_OPCODES[operation]).name)

    def foreign(self, cqe: bytes) -> bytes:
        """Return the entry as one of `FOREIGN_QPN`."""
        changed = bytearray(cqe)
        CQE.set(changed, "qpn", FOREIGN_QPN)
        return bytes(changed)

    def failed(self, cqe: bytes, status: int, vendor: int) -> bytes:
        """Return the entry as one in error with these syndromes."""
        sent = CQE.get(cqe, "opcode") in (CqeOpcode.REQUEST, CqeOpcode.REQUEST_ERROR)
        return bytes(
            ERROR_CQE.pack(
                vendor_syndrome=vendor,
                syndrome=status,
                wqe_opcode=CQE.get(cqe, "wqe_opcode"),
                srqn=CQE.get(cqe, "srqn"),
                qpn=CQE.get(cqe, "qpn"),
                wqe_counter=CQE.get(cqe, "wqe_counter"),
                opcode=CqeOpcode.REQUEST_ERROR if sent else CqeOpcode.RESPONSE_ERROR,
            )
        )
