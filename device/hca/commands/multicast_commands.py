"""Commands on multicast groups."""

from __future__ import annotations

from bluebridge.device.hca.adapter import Adapter
from bluebridge.device.hca.commands.command import Command, Rule
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import Opcode, Status

DEFAULT_RECORD = 1


def read_mcg(adapter: Adapter, command: Command) -> bytes:
    """One record."""
    return adapter.multicast.read(command.in_modifier)


def write_mcg(adapter: Adapter, command: Command) -> None:
    """Store one record, or (op modifier 1) the default one of a port and a kind of addresses."""
    if command.op_modifier == DEFAULT_RECORD:
        port = adapter.port_of(command.in_modifier >> 16 & 0xFF)
        steer = command.in_modifier >> 1 & 1
        record = command.mailbox(adapter.multicast.record_bytes)
        adapter.multicast.write_default(port.number, steer, record)
        return
    if command.op_modifier:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    adapter.multicast.write(command.in_modifier, command.mailbox(adapter.multicast.record_bytes))


def mgid_hash(adapter: Adapter, command: Command) -> int:
    """The hash bucket of a GID."""
    return adapter.multicast.hash(command.mailbox(16))


RULES: dict[int, Rule] = {
    Opcode.READ_MCG: Rule(read_mcg),
    Opcode.WRITE_MCG: Rule(write_mcg),
    Opcode.MGID_HASH: Rule(mgid_hash),
}
