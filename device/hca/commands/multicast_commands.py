"""Commands on multicast groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import Opcode, Status

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca

DEFAULT_RECORD = 1


def read_mcg(hca: Hca, command: Command) -> bytes:
    """One record."""
    return hca.multicast.read(command.in_modifier)


def write_mcg(hca: Hca, command: Command) -> None:
    """Store one record, or (op modifier 1) the default one of a port and a kind of addresses."""
    if command.op_modifier == DEFAULT_RECORD:
        port, steer = hca.port_of(command.in_modifier >> 16 & 0xFF), command.in_modifier >> 1 & 1
        record = command.mailbox(hca.multicast.record_bytes)
        hca.multicast.write_default(port.number, steer, record)
        return
    if command.op_modifier:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    hca.multicast.write(command.in_modifier, command.mailbox(hca.multicast.record_bytes))


def mgid_hash(hca: Hca, command: Command) -> int:
    """The hash bucket of a GID."""
    return hca.multicast.hash(command.mailbox(16))


HANDLERS: dict[int, Handler] = {
    Opcode.READ_MCG: read_mcg,
    Opcode.WRITE_MCG: write_mcg,
    Opcode.MGID_HASH: mgid_hash,
}
