"""Commands on multicast groups, which fail while the device steers by rules.

Linux `mlx4/mcg.c: mlx4_multicast_attach, mlx4_init_mcg_table`: with device-managed steering groups
are rules, and the driver has no table of records.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.settings.refusal import CommandError

DEFAULT_RECORD = 1


def read_mcg(adapter: Adapter, command: Command) -> bytes:
    """Return one multicast group record."""
    return _groups(adapter).read(command.in_modifier)


def write_mcg(adapter: Adapter, command: Command) -> None:
    """Store one record; op modifier 1: the default record of a port and a kind of addresses."""
    groups = _groups(adapter)
    if command.op_modifier == DEFAULT_RECORD:
        port = adapter.port_of(command.in_modifier >> 16 & 0xFF)
        steer = command.in_modifier >> 1 & 1
        record = command.mailbox(groups.record_bytes)
        groups.write_default(port.number, steer, record)
        return
    if command.op_modifier:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    groups.write(command.in_modifier, command.mailbox(groups.record_bytes))


def mgid_hash(adapter: Adapter, command: Command) -> int:
    """Return the hash bucket of a GID."""
    return _groups(adapter).hash(command.mailbox(16))


def _groups(adapter: Adapter) -> MulticastGroups:
    """Return the multicast groups; raises `CommandError` (BAD_SYS_STATE) if rules replace them."""
    if adapter.parameters.flow_steering:
        raise CommandError(Status.BAD_SYS_STATE, "groups are rules of device-managed steering")
    return adapter.multicast


RULES: dict[int, Rule] = {
    Opcode.READ_MCG: Rule(read_mcg),
    Opcode.WRITE_MCG: Rule(write_mcg),
    Opcode.MGID_HASH: Rule(mgid_hash),
}
