"""Commands on shared receive queues (Linux `mlx4/srq.c`)."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import SRQC_SIZE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveRing
from bluebridge.device.mlx4.settings.refusal import CommandError

SRQN_MASK = 0xFFFFFF
LIMIT_MASK = 0xFFFF


def _find(adapter: Adapter, command: Command) -> SharedReceiveRing:
    srq = adapter.srqs.get(command.in_modifier & SRQN_MASK)
    if srq is None:
        raise CommandError(Status.BAD_INDEX, f"SRQ {command.in_modifier & SRQN_MASK:#x}")
    return srq


def create(adapter: Adapter, command: Command) -> None:
    """Hand a shared receive queue over to the device (SW2HW_SRQ)."""
    adapter.srqs.create(command.in_modifier & SRQN_MASK, command.mailbox(SRQC_SIZE))


def destroy(adapter: Adapter, command: Command) -> bytes | None:
    """Take a shared receive queue back (HW2SW_SRQ); returns its context if that is asked for."""
    srqn = command.in_modifier & SRQN_MASK
    srq = adapter.srqs.get(srqn)
    adapter.srqs.destroy(srqn)
    return srq.query() if command.wants_context and srq is not None else None


def query(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of a shared receive queue (QUERY_SRQ)."""
    return _find(adapter, command).query()


def arm(adapter: Adapter, command: Command) -> None:
    """Ask for an event when fewer entries than the immediate input are left (ARM_SRQ)."""
    _find(adapter, command).arm(command.in_param & LIMIT_MASK)


RULES: dict[int, Rule] = {
    Opcode.SW2HW_SRQ: Rule(create),
    Opcode.HW2SW_SRQ: Rule(destroy, closing=True),
    Opcode.QUERY_SRQ: Rule(query),
    Opcode.ARM_SRQ: Rule(arm),
}
