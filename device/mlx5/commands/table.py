"""The rules of all firmware commands, by opcode; a module for each kind of object has its own."""

from __future__ import annotations

from bluebridge.device.mlx5.commands import device_commands, event_commands, register_commands
from bluebridge.device.mlx5.commands.command import Rule

RULES: dict[int, Rule] = {
    **device_commands.RULES,
    **event_commands.RULES,
    **register_commands.RULES,
}
