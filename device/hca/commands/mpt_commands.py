"""Commands on memory regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import MPT_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca


def sw2hw_mpt(hca: Hca, command: Command) -> None:
    """Make an MPT entry valid."""
    hca.regions.create(command.in_modifier, command.mailbox(MPT_SIZE))


def hw2sw_mpt(hca: Hca, command: Command) -> bytes | None:
    """Give an MPT entry back; op modifier 0 wants a copy in the output mailbox."""
    if command.op_modifier == 0 and command.out_param and command.in_modifier in hca.regions:
        entry = hca.regions.query(command.in_modifier)
        hca.regions.destroy(command.in_modifier)
        return entry
    hca.regions.destroy(command.in_modifier)
    return None


def query_mpt(hca: Hca, command: Command) -> bytes:
    """The entry as it stands."""
    return hca.regions.query(command.in_modifier)


def sync_tpt(hca: Hca, command: Command) -> None:
    """Take entries over that software edited in its table."""
    hca.regions.synchronise()


HANDLERS: dict[int, Handler] = {
    Opcode.SW2HW_MPT: sw2hw_mpt,
    Opcode.HW2SW_MPT: hw2sw_mpt,
    Opcode.QUERY_MPT: query_mpt,
    Opcode.SYNC_TPT: sync_tpt,
}
