"""Activities of one transaction, and those of work requests."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.analysis.transfer import Transfer
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.transaction import Transaction

_BY_KIND = {
    Kind.MMIO_READ: ActivityKind.ACCESS,
    Kind.MMIO_WRITE: ActivityKind.ACCESS,
    Kind.DMA_READ: ActivityKind.DMA,
    Kind.DMA_WRITE: ActivityKind.DMA,
    Kind.IRQ: ActivityKind.INTERRUPT,
    Kind.COMMAND: ActivityKind.COMMAND,
    Kind.RESET: ActivityKind.RESET,
    Kind.CONFIG_READ: ActivityKind.CONFIG,
    Kind.CONFIG_WRITE: ActivityKind.CONFIG,
    Kind.NOTE: ActivityKind.NOTE,
    Kind.WIRE: ActivityKind.DMA,
    Kind.BLUEFLAME: ActivityKind.ACCESS,
    Kind.FAULT: ActivityKind.FAULT,
    Kind.LINK: ActivityKind.LINK,
    Kind.CONTROL: ActivityKind.CONTROL,
}
_WAYS = {
    Kind.MMIO_READ: "read",
    Kind.MMIO_WRITE: "write",
    Kind.CONFIG_READ: "read",
    Kind.CONFIG_WRITE: "write",
}
_KINDS = tuple(_BY_KIND[kind] for kind in Kind)
_SHORT = (Kind.DMA_READ, Kind.DMA_WRITE)
"""Kinds of which there are many: their words say less, and are made faster."""
_QUEUE_ENTRIES = (What.CQE, What.EQE)


def lone(event: Event, one: Transaction) -> Activity:
    """Make an activity of an event that belongs to nothing else."""
    return started(event, one, _KINDS[event.kind])


def started(event: Event, one: Transaction, kind: ActivityKind) -> Activity:
    """Begin an activity with an event, whose words are its title."""
    if not one.text:
        one.text = _words(event, one)
    way = _WAYS.get(event.kind)
    title = f"{way} {one.text}" if way else one.text
    activity = Activity(one.number, kind, one.device, title, one.time, one.time)
    activity.add(one)
    return activity


def _words(event: Event, one: Transaction) -> str:
    if event.kind in _SHORT and event.what not in _QUEUE_ENTRIES:
        return one.purpose
    return decode(event)


def of_transfer(transfer: Transfer) -> Activity:
    """Make the activity of a work request; its notes' events follow its transactions."""
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
