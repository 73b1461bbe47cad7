"""Fields of send queue entries and completion entries that the assembly of transfers needs."""

from __future__ import annotations

from struct import Struct

from bluebridge.device.layout.mlx4 import wqe
from bluebridge.device.layout.mlx4.cqe import (
    CQE_SIZE,
    ERROR_CQE,
    IS_SEND_BIT,
    OPCODE_ERROR,
    OPCODE_MASK,
    OWNER_OFFSET,
    CompletionStatus,
)
from bluebridge.host_tools.analyzer.analysis.transfer import Transfer

_NAMES = {int(opcode): opcode.name for opcode in wqe.SendOpcode}
_SYNDROMES = {int(syndrome): syndrome.name for syndrome in CompletionStatus}
OK = "OK"
HEADER_BYTES = 8
_HEAD = Struct(">I20xH")
"""QPN and index of a completion entry: fields `qpn` and `wqe_index` of `CQE`."""


def read_entry(transfer: Transfer, data: bytes | bytearray) -> None:
    """Fill in opcode and size of the entry; `data` is its beginning."""
    if len(data) < HEADER_BYTES:
        return
    code = data[3] & 0x1F
    transfer.opcode = _NAMES.get(code, hex(code))
    transfer.entry_bytes = (data[7] & wqe.DS_MASK) * 16


def is_flushed(data: bytes | bytearray) -> bool:
    """Whether a completion is of a work request that was flushed: no message caused it."""
    entry = bytes(data[-CQE_SIZE:])
    return (
        len(entry) == CQE_SIZE
        and entry[OWNER_OFFSET] & OPCODE_MASK == OPCODE_ERROR
        and ERROR_CQE.get(entry, "syndrome") == CompletionStatus.WR_FLUSH_ERR
    )


def completion(data: bytes | bytearray) -> tuple[int, int, str] | None:
    """QPN, low 16 bits of the index, status of a send completion; None for one of a receive."""
    entry = bytes(data[-CQE_SIZE:])
    if len(entry) < CQE_SIZE or not entry[OWNER_OFFSET] & IS_SEND_BIT:
        return None
    qpn, index = _HEAD.unpack_from(entry)
    if entry[OWNER_OFFSET] & OPCODE_MASK != OPCODE_ERROR:
        return qpn & 0xFFFFFF, index, OK
    syndrome = ERROR_CQE.get(entry, "syndrome")
    return qpn & 0xFFFFFF, index, _SYNDROMES.get(syndrome, hex(syndrome))
