"""QUERY_IF_STAT: the interface counters of the adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, Status

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca


def query_if_stat(hca: Hca, command: Command) -> bytes:
    """One counter; bit 31 of the modifier zeroes it."""
    index = command.in_modifier & ~MODIFIER_RESET_COUNTER
    if index >= INTERFACE_COUNTERS:
        raise CommandError(Status.BAD_INDEX, f"counter {index:#x}")
    return hca.counters.read(index, clear=bool(command.in_modifier & MODIFIER_RESET_COUNTER))


HANDLERS: dict[int, Handler] = {Opcode.QUERY_IF_STAT: query_if_stat}
