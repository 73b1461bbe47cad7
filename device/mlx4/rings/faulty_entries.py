"""Completion entries of a ConnectX-3 as faults by name want them."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.armed_faults import FOREIGN_QPN
from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.mlx4.cqe import IS_SEND_BIT, OPCODE_ERROR, OPCODE_MASK, RecvOpcode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.mlx4.words import SEND_OPCODES

_QPN: Final = 0xFFFFFF
_IS_SEND: Final = int(IS_SEND_BIT)
_ERROR: Final = Struct(">4s20x2sBB3xB")
_OPCODE: Final = int(OPCODE_MASK)
_SENT: Final = {int(code): ibverbs.operation(code.name) for code in SendOpcode}
"""The name of an operation by the opcode of a completed send."""
_RECEIVED: Final = {
    int(code): (
        ibverbs.RECEIVE_WRITE if code is RecvOpcode.RDMA_WRITE_WITH_IMM else ibverbs.RECEIVE
    )
    for code in RecvOpcode
}
_POSTED: Final = tuple(_SENT[code] for code in SEND_OPCODES)
"""The name of an operation by its number in `rdma.vocabulary`."""


class FaultyEntries:
    """The form of entries: `device.layout.mlx4.cqe`."""

    def operation(self, cqe: bytes) -> str:
        """Return the name in verbs of the operation that is complete; empty for a failed one."""
        side = cqe[-1] & _IS_SEND
        return (_SENT if side else _RECEIVED).get(cqe[-1] & _OPCODE, "")

    def posted(self, operation: int) -> str:
        """Return the name in verbs of an operation of engines."""
        return _POSTED[operation]

    def foreign(self, cqe: bytes) -> bytes:
        """Return the entry as one of `FOREIGN_QPN`."""
        word = int.from_bytes(cqe[:4], "big") & ~_QPN | FOREIGN_QPN
        return word.to_bytes(4, "big") + cqe[4:]

    def failed(self, cqe: bytes, status: int, vendor: int) -> bytes:
        """Return the entry as one in error with these syndromes."""
        side = cqe[-1] & _IS_SEND
        return _ERROR.pack(cqe[:4], cqe[24:26], vendor, status, side | OPCODE_ERROR)
