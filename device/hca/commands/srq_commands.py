"""Commands on shared receive queues (Linux `mlx4/srq.c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.rings.shared_receive_queues import SharedReceiveQueue
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import SRQC, SRQC_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca

SRQN_MASK = 0xFFFFFF
LIMIT_MASK = 0xFFFF


def _find(hca: Hca, command: Command) -> SharedReceiveQueue:
    srq = hca.srqs.get(command.in_modifier & SRQN_MASK)
    if srq is None:
        raise CommandError(Status.BAD_INDEX, f"SRQ {command.in_modifier & SRQN_MASK:#x}")
    return srq


def create(hca: Hca, command: Command) -> None:
    """SW2HW_SRQ."""
    hca.srqs.create(command.in_modifier & SRQN_MASK, command.mailbox(SRQC_SIZE))


def destroy(hca: Hca, command: Command) -> bytes | None:
    """HW2SW_SRQ; closing commands never fail. Op modifier 1 wants no output mailbox."""
    srqn = command.in_modifier & SRQN_MASK
    srq = hca.srqs.get(srqn)
    hca.srqs.destroy(srqn)
    return None if command.op_modifier or srq is None else _context(srq)


def query(hca: Hca, command: Command) -> bytes:
    """QUERY_SRQ: the context as it stands."""
    return _context(_find(hca, command))


def arm(hca: Hca, command: Command) -> None:
    """ARM_SRQ: an event when fewer entries than the immediate are left."""
    _find(hca, command).arm(command.in_param & LIMIT_MASK)


def _context(srq: SharedReceiveQueue) -> bytes:
    return bytes(
        SRQC.pack(
            log_size=srq.log_size,
            srqn=srq.srqn,
            log_stride=srq.shift - 4,
            pd=srq.pd,
            xrcd=srq.xrcd,
            cqn=srq.cqn,
            limit_watermark=srq.limit,
            wqe_counter=srq.consumed,
            doorbell_record=srq.record,
        )
    )


HANDLERS: dict[int, Handler] = {
    Opcode.SW2HW_SRQ: create,
    Opcode.HW2SW_SRQ: destroy,
    Opcode.QUERY_SRQ: query,
    Opcode.ARM_SRQ: arm,
}
