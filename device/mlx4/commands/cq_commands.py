"""Commands on completion queues."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, CQC_SIZE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueue
from bluebridge.device.mlx4.settings.refusal import CommandError

RESIZE, MODERATION = 0, 1


def sw2hw_cq(adapter: Adapter, command: Command) -> Iterator[None]:
    """Hand a completion queue over to the device; op modifier 1: with its entries as they are."""
    context = command.mailbox(CQC_SIZE)
    return adapter.cqs.create(command.in_modifier, context, fill=command.op_modifier == 0)


def hw2sw_cq(adapter: Adapter, command: Command) -> bytes | None:
    """Take a completion queue back; returns its context if the command has a mailbox for it."""
    queue = adapter.cqs.get(command.in_modifier)
    context = queue.query() if command.wants_context and queue is not None else None
    adapter.cqs.destroy(command.in_modifier)
    return context


def query_cq(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of a completion queue."""
    return _find(adapter, command).query()


def _find(adapter: Adapter, command: Command) -> CompletionQueue:
    queue = adapter.cqs.get(command.in_modifier)
    if queue is None:
        raise CommandError(Status.BAD_INDEX, f"CQ {command.in_modifier:#x}")
    return queue


def modify_cq(adapter: Adapter, command: Command) -> Iterator[None] | None:
    """Move a completion queue to another buffer, or set how many entries one event stands for."""
    queue = _find(adapter, command)
    context = command.mailbox(CQC_SIZE)
    if command.op_modifier == MODERATION:
        queue.period, queue.max_count = CQC.get(context, "period"), CQC.get(context, "max_count")
        return None
    if command.op_modifier == RESIZE:
        return queue.resize(adapter.cqs.buffer_of(context), context)
    raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")


RULES: dict[int, Rule] = {
    Opcode.SW2HW_CQ: Rule(sw2hw_cq),
    Opcode.HW2SW_CQ: Rule(hw2sw_cq, closing=True),
    Opcode.QUERY_CQ: Rule(query_cq),
    Opcode.MODIFY_CQ: Rule(modify_cq),
}
