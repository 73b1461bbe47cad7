"""Commands on memory regions."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import MPT_SIZE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule


def sw2hw_mpt(adapter: Adapter, command: Command) -> Iterator[None]:
    """Make an MPT entry valid."""
    return adapter.mpt.create(command.in_modifier, command.mailbox(MPT_SIZE))


def hw2sw_mpt(adapter: Adapter, command: Command) -> bytes | None:
    """Give an MPT entry back; returns it if the command has a mailbox for it."""
    index = command.in_modifier
    wanted = command.wants_context and index in adapter.regions
    entry = adapter.mpt.query(index) if wanted else None
    adapter.mpt.destroy(index)
    return entry


def query_mpt(adapter: Adapter, command: Command) -> bytes:
    """Return an MPT entry as it is now."""
    return adapter.mpt.query(command.in_modifier)


def sync_tpt(adapter: Adapter, command: Command) -> Iterator[None]:
    """Make entries valid that software edited in the table in guest memory."""
    return adapter.mpt.synchronise()


RULES: dict[int, Rule] = {
    Opcode.SW2HW_MPT: Rule(sw2hw_mpt),
    Opcode.HW2SW_MPT: Rule(hw2sw_mpt, closing=True),
    Opcode.QUERY_MPT: Rule(query_mpt),
    Opcode.SYNC_TPT: Rule(sync_tpt, closing=True),
}
