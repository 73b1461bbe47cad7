"""Commands on event queues."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import MODIFIER_UNMAP_EQ, Opcode, Status
from bluebridge.device.layout.mlx4.contexts import EQC_SIZE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.settings.refusal import CommandError


def sw2hw_eq(adapter: Adapter, command: Command) -> Iterator[None]:
    """Hand an event queue over to the device."""
    return adapter.eqs.create(command.in_modifier, command.mailbox(EQC_SIZE))


def hw2sw_eq(adapter: Adapter, command: Command) -> bytes | None:
    """Take an event queue back; returns its context if the command has a mailbox for it."""
    eqn = command.in_modifier
    context = adapter.eqs.query(eqn) if command.wants_context and adapter.eqs.get(eqn) else None
    adapter.eqs.destroy(eqn)
    return context


def query_eq(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of an event queue."""
    return adapter.eqs.query(command.in_modifier)


def map_eq(adapter: Adapter, command: Command) -> None:
    """Route asynchronous events to an event queue; the immediate input is a mask of event types."""
    eqn = command.in_modifier & ~MODIFIER_UNMAP_EQ
    unmap = bool(command.in_modifier & MODIFIER_UNMAP_EQ)
    if not unmap and adapter.eqs.get(eqn) is None:
        raise CommandError(Status.BAD_INDEX, f"EQ {eqn:#x}")
    adapter.eqs.map_events(eqn, command.in_param, unmap)


RULES: dict[int, Rule] = {
    Opcode.SW2HW_EQ: Rule(sw2hw_eq),
    Opcode.HW2SW_EQ: Rule(hw2sw_eq, closing=True),
    Opcode.QUERY_EQ: Rule(query_eq),
    Opcode.MAP_EQ: Rule(map_eq),
}
