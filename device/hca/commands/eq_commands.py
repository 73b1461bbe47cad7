"""Commands on event queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import MODIFIER_UNMAP_EQ, Opcode, Status
from bluebridge.device.layout.mlx4.contexts import EQC_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca


def sw2hw_eq(hca: Hca, command: Command) -> None:
    """Hand a ring over to the device."""
    hca.eqs.create(command.in_modifier, command.mailbox(EQC_SIZE))


def hw2sw_eq(hca: Hca, command: Command) -> None:
    """Take a ring back."""
    hca.eqs.destroy(command.in_modifier)


def map_eq(hca: Hca, command: Command) -> None:
    """Route asynchronous events: the immediate input is a mask of event types."""
    eqn = command.in_modifier & ~MODIFIER_UNMAP_EQ
    unmap = bool(command.in_modifier & MODIFIER_UNMAP_EQ)
    if not unmap and hca.eqs.get(eqn) is None:
        raise CommandError(Status.BAD_INDEX, f"EQ {eqn:#x}")
    hca.eqs.map_events(eqn, command.in_param, unmap)


HANDLERS: dict[int, Handler] = {
    Opcode.SW2HW_EQ: sw2hw_eq,
    Opcode.HW2SW_EQ: hw2sw_eq,
    Opcode.MAP_EQ: map_eq,
}
