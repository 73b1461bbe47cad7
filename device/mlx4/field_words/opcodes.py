"""Commands that the adapter does not carry out: each ends with BAD_OP."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode

REFUSED: dict[Opcode, str] = {
    Opcode.READ_MTT: "software writes the table itself, or with WRITE_MTT, and needs no copy",
    Opcode.SUSPEND_QP: "SQD stops a queue pair; no driver uses the suspended state",
    Opcode.UNSUSPEND_QP: "as SUSPEND_QP",
    Opcode.QUERY_FUNC: "of virtual functions, which there are not",
    Opcode.VIRT_PORT_MAP: "ports are what they are: there is no bonding in the adapter",
    Opcode.UPDATE_QP: "its capability is not announced; Linux does without",
}
"""The reason why a command is not carried out, by opcode."""
