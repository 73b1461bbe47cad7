"""Activities of one transaction, and those of work requests."""

from __future__ import annotations

from bluebridge.device.buslog.activity.activity import Activity, ActivityKind
from bluebridge.device.buslog.analysis.queue_entries import OK
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.analysis.transfer import Transfer

_BY_TLP = {
    Tlp.MEMORY_WRITE: ActivityKind.DMA,
    Tlp.MEMORY_READ: ActivityKind.DMA,
    Tlp.CONFIG_READ: ActivityKind.CONFIG,
    Tlp.CONFIG_WRITE: ActivityKind.CONFIG,
    Tlp.MESSAGE: ActivityKind.DMA,
    Tlp.NONE: ActivityKind.NOTE,
}
_BY_ROLE = {
    Role.COMMAND: ActivityKind.COMMAND,
    Role.RESET: ActivityKind.RESET,
    Role.INTERRUPT: ActivityKind.INTERRUPT,
}


def lone(one: Transaction) -> Activity:
    """A transaction that belongs to nothing else."""
    kind = _BY_ROLE.get(one.role) or _BY_TLP[one.tlp]
    if kind is ActivityKind.DMA and not one.upstream:
        kind = ActivityKind.ACCESS
    return started(one, kind, one.text or one.role.value)


def started(one: Transaction, kind: ActivityKind, title: str) -> Activity:
    """An activity that begins with a transaction."""
    activity = Activity(one.number, kind, one.device, title, one.time, one.time)
    activity.add(one)
    return activity


def of_transfer(transfer: Transfer) -> Activity:
    """A work request; its notes' events follow its transactions."""
    parts = transfer.transactions + transfer.noted if transfer.noted else transfer.transactions
    begin, number = parts[0].time, parts[0].number
    end = begin
    for one in parts:
        one.given = True
        if one.number < number:
            begin, number = one.time, one.number
        if one.time > end:
            end = one.time
    title = f"{transfer.opcode or 'work request'} {transfer.length} bytes, QP {transfer.qpn:#x}"
    return Activity(
        number, ActivityKind.WORK_REQUEST, transfer.device, title, begin, end,
        transfer.status, parts, transfer, None, transfer.notes,
    )  # fmt: skip


def failed(activity: Activity) -> bool:
    """Whether it ended with an error."""
    return activity.status not in ("", OK)
