"""Commands on event, completion and shared receive queues, and on memory regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bluebridge.device.layout.mlx4.commands import MODIFIER_UNMAP_EQ, Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, CQC_SIZE, EQC_SIZE, MPT_SIZE, SRQC_SIZE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueue
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveRing
from bluebridge.device.mlx4.settings.parameters import CommandError

RESIZE, MODERATION = 0, 1
SRQN_MASK = 0xFFFFFF
LIMIT_MASK = 0xFFFF


def _wanted(
    adapter: Adapter, command: Command, query: Callable[[Adapter, Command], bytes]
) -> bytes | None:
    """Return what an object's query would say, if a HW2SW command (op modifier 0) asks for it.

    It has an output mailbox then; Linux says both or neither (`mlx4/srq.c: mlx4_HW2SW_SRQ`).
    """
    if command.op_modifier or not command.out_param:
        return None
    try:
        return query(adapter, command)
    except CommandError:
        return None  # there is no such object


def sw2hw_eq(adapter: Adapter, command: Command) -> Iterator[None]:
    """Hand an event queue over to the device."""
    return adapter.eqs.create(command.in_modifier, command.mailbox(EQC_SIZE))


def hw2sw_eq(adapter: Adapter, command: Command) -> bytes | None:
    """Take an event queue back; returns its context if the command has a mailbox for it."""
    context = _wanted(adapter, command, query_eq)
    adapter.eqs.destroy(command.in_modifier)
    return context


def query_eq(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of an event queue."""
    return adapter.eqs.query(command.in_modifier)


def map_eq(adapter: Adapter, command: Command) -> None:
    """Route asynchronous events to an event queue; the immediate input is a mask of event types."""
    eqn = command.in_modifier & ~MODIFIER_UNMAP_EQ
    unmap = bool(command.in_modifier & MODIFIER_UNMAP_EQ)
    if not unmap and adapter.eqs.get(eqn) is None:
        raise CommandError(Status.BAD_INDEX, f"EQ {eqn:#x}")
    adapter.eqs.map_events(eqn, command.in_param, unmap)


def sw2hw_cq(adapter: Adapter, command: Command) -> Iterator[None]:
    """Hand a completion queue over to the device; op modifier 1: with its entries as they are."""
    context = command.mailbox(CQC_SIZE)
    return adapter.cqs.create(command.in_modifier, context, fill=command.op_modifier == 0)


def hw2sw_cq(adapter: Adapter, command: Command) -> bytes | None:
    """Take a completion queue back; returns its context if the command has a mailbox for it."""
    context = _wanted(adapter, command, query_cq)
    adapter.cqs.destroy(command.in_modifier)
    return context


def query_cq(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of a completion queue."""
    return _cq(adapter, command).query()


def _cq(adapter: Adapter, command: Command) -> CompletionQueue:
    queue = adapter.cqs.get(command.in_modifier)
    if queue is None:
        raise CommandError(Status.BAD_INDEX, f"CQ {command.in_modifier:#x}")
    return queue


def modify_cq(adapter: Adapter, command: Command) -> Iterator[None] | None:
    """Move a completion queue to another buffer, or set how many entries one event stands for."""
    queue = _cq(adapter, command)
    context = command.mailbox(CQC_SIZE)
    if command.op_modifier == MODERATION:
        queue.period, queue.max_count = CQC.get(context, "period"), CQC.get(context, "max_count")
        return None
    if command.op_modifier == RESIZE:
        return queue.resize(adapter.cqs.buffer_of(context), context)
    raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")


def _srq(adapter: Adapter, command: Command) -> SharedReceiveRing:
    srq = adapter.srqs.get(command.in_modifier & SRQN_MASK)
    if srq is None:
        raise CommandError(Status.BAD_INDEX, f"SRQ {command.in_modifier & SRQN_MASK:#x}")
    return srq


def sw2hw_srq(adapter: Adapter, command: Command) -> None:
    """Hand a shared receive queue over to the device (SW2HW_SRQ)."""
    adapter.srqs.create(command.in_modifier & SRQN_MASK, command.mailbox(SRQC_SIZE))


def hw2sw_srq(adapter: Adapter, command: Command) -> bytes | None:
    """Take a shared receive queue back (HW2SW_SRQ); returns its context if that is asked for."""
    context = _wanted(adapter, command, query_srq)
    adapter.srqs.destroy(command.in_modifier & SRQN_MASK)
    return context


def query_srq(adapter: Adapter, command: Command) -> bytes:
    """Return the present context of a shared receive queue (QUERY_SRQ)."""
    return _srq(adapter, command).query()


def arm_srq(adapter: Adapter, command: Command) -> None:
    """Ask for an event when fewer entries than the immediate input are left (ARM_SRQ)."""
    _srq(adapter, command).arm(command.in_param & LIMIT_MASK)


def sw2hw_mpt(adapter: Adapter, command: Command) -> Iterator[None]:
    """Make an MPT entry valid."""
    return adapter.mpt.create(command.in_modifier, command.mailbox(MPT_SIZE))


def hw2sw_mpt(adapter: Adapter, command: Command) -> bytes | None:
    """Give an MPT entry back; returns it if the command has a mailbox for it."""
    entry = _wanted(adapter, command, query_mpt)
    adapter.mpt.destroy(command.in_modifier)
    return entry


def query_mpt(adapter: Adapter, command: Command) -> bytes:
    """Return an MPT entry as it is now."""
    return adapter.mpt.query(command.in_modifier)


def sync_tpt(adapter: Adapter, command: Command) -> Iterator[None]:
    """Make entries valid that software edited in the table in guest memory."""
    return adapter.mpt.synchronise()


RULES: dict[int, Rule] = {
    Opcode.SW2HW_EQ: Rule(sw2hw_eq),
    Opcode.HW2SW_EQ: Rule(hw2sw_eq, closing=True),
    Opcode.QUERY_EQ: Rule(query_eq),
    Opcode.MAP_EQ: Rule(map_eq),
    Opcode.SW2HW_CQ: Rule(sw2hw_cq),
    Opcode.HW2SW_CQ: Rule(hw2sw_cq, closing=True),
    Opcode.QUERY_CQ: Rule(query_cq),
    Opcode.MODIFY_CQ: Rule(modify_cq),
    Opcode.SW2HW_SRQ: Rule(sw2hw_srq),
    Opcode.HW2SW_SRQ: Rule(hw2sw_srq, closing=True),
    Opcode.QUERY_SRQ: Rule(query_srq),
    Opcode.ARM_SRQ: Rule(arm_srq),
    Opcode.SW2HW_MPT: Rule(sw2hw_mpt),
    Opcode.HW2SW_MPT: Rule(hw2sw_mpt, closing=True),
    Opcode.QUERY_MPT: Rule(query_mpt),
    Opcode.SYNC_TPT: Rule(sync_tpt, closing=True),
}
