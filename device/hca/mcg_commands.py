"""Commands on multicast groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device.hca.command import Command, CommandError, Handler, Status
from device.layout.mlx4.commands import Opcode

if TYPE_CHECKING:
    from device.hca.device import Hca


def read_mcg(hca: Hca, command: Command) -> bytes:
    """One record."""
    return hca.multicast.read(command.in_modifier)


def write_mcg(hca: Hca, command: Command) -> None:
    """Store one record; the promiscuous form (op modifier 1) belongs to B0 steering."""
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
