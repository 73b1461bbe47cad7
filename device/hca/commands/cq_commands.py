"""Commands on completion queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, CQC_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca

RESIZE, MODERATION = 0, 1


def sw2hw_cq(hca: Hca, command: Command) -> None:
    """Hand a ring over to the device; op modifier 1: software gave every entry away already."""
    context = command.mailbox(CQC_SIZE)
    hca.cqs.create(command.in_modifier, context, fill=command.op_modifier == 0)


def hw2sw_cq(hca: Hca, command: Command) -> None:
    """Take a ring back."""
    hca.cqs.destroy(command.in_modifier)


def modify_cq(hca: Hca, command: Command) -> None:
    """Another buffer, or interrupt moderation: how many entries one event may stand for."""
    queue = hca.cqs.get(command.in_modifier)
    if queue is None:
        raise CommandError(Status.BAD_INDEX, f"CQ {command.in_modifier:#x}")
    context = command.mailbox(CQC_SIZE)
    if command.op_modifier == MODERATION:
        queue.period, queue.max_count = CQC.get(context, "period"), CQC.get(context, "max_count")
    elif command.op_modifier == RESIZE:
        queue.resize(hca.cqs.buffer_of(context), CQC.get(context, "log_size"))
    else:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")


HANDLERS: dict[int, Handler] = {
    Opcode.SW2HW_CQ: sw2hw_cq,
    Opcode.HW2SW_CQ: hw2sw_cq,
    Opcode.MODIFY_CQ: modify_cq,
}
