"""The command QUERY_IF_STAT, for the interface counters of the adapter."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, Status
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.statistics import interface_statistics
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.mlx4.settings.refusal import CommandError


def query_if_stat(adapter: Adapter, command: Command) -> bytes:
    """Return one counter (QUERY_IF_STAT); bit 31 of the input modifier zeroes it."""
    index = command.in_modifier & ~MODIFIER_RESET_COUNTER
    if index >= INTERFACE_COUNTERS:
        raise CommandError(Status.BAD_INDEX, f"counter {index:#x}")
    counter = adapter.counters.of(index)
    answer = interface_statistics(counter)
    if command.in_modifier & MODIFIER_RESET_COUNTER:
        counter.clear()
    return answer


RULES: dict[int, Rule] = {Opcode.QUERY_IF_STAT: Rule(query_if_stat)}
