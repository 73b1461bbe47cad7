"""What a work queue entry says about its work request."""

from __future__ import annotations

from device.buslog.analysis.transfer import Transfer
from device.layout.mlx4 import wqe
from device.layout.mlx4.cqe import CQE, CQE_SIZE, ERROR_CQE, OPCODE_ERROR, Syndrome

_NAMES = {int(opcode): opcode.name for opcode in wqe.SendOpcode}
_SYNDROMES = {int(syndrome): syndrome.name for syndrome in Syndrome}
OK = "OK"


def read_entry(transfer: Transfer, data: bytes | bytearray) -> None:
    """Fill in opcode and size of the entry; `data` is its beginning."""
    if len(data) < HEADER_BYTES:
        return
    code = data[3] & 0x1F
    transfer.opcode = _NAMES.get(code, hex(code))
    transfer.entry_bytes = (data[7] & wqe.DS_MASK) * 16


HEADER_BYTES = 8


def completion(data: bytes | bytearray) -> tuple[int, int, str] | None:
    """QPN, low 16 bits of the index, status of a send completion; None for one of a receive."""
    entry = bytes(data[-CQE_SIZE:])
    if len(entry) < CQE_SIZE or not CQE.get(entry, "is_send"):
        return None
    qpn, index = CQE.get(entry, "qpn"), CQE.get(entry, "wqe_index")
    if CQE.get(entry, "opcode") != OPCODE_ERROR:
        return qpn, index, OK
    syndrome = ERROR_CQE.get(entry, "syndrome")
    return qpn, index, _SYNDROMES.get(syndrome, hex(syndrome))
