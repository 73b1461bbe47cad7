"""The rules of all firmware commands, by opcode; a module for each kind of object has its own."""

from __future__ import annotations

from bluebridge.device.mlx5.commands import (
    device_commands,
    event_commands,
    flow_commands,
    interface_commands,
    object_commands,
    pair_commands,
    port_commands,
    queue_commands,
    register_commands,
    roce_commands,
    shared_queue_commands,
    user_commands,
)
from bluebridge.device.mlx5.commands.command import Rule

RULES: dict[int, Rule] = {
    **device_commands.RULES,
    **event_commands.RULES,
    **register_commands.RULES,
    **object_commands.RULES,
    **queue_commands.RULES,
    **interface_commands.RULES,
    **flow_commands.RULES,
    **port_commands.RULES,
    **pair_commands.RULES,
    **shared_queue_commands.RULES,
    **roce_commands.RULES,
    **user_commands.RULES,
}
