"""The transactions of a log: what each event is on the bus, with the stores of a line as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.wire import packet_of
from bluebridge.device.layout.buslog import SEND_ENTRIES, Kind, What
from bluebridge.host_tools.analyzer.analysis.triggers import same_line
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of
from bluebridge.host_tools.analyzer.packets import is_answer, words
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

_BOTH: dict[What, Role] = {
    What.WINDOW: Role.WINDOW,
    What.MESSAGE: Role.INTERRUPT,
    What.OTHER: Role.OTHER,
}
_READS: dict[What, Role] = {
    **_BOTH,
    **dict.fromkeys(SEND_ENTRIES, Role.WQE),
    What.PAYLOAD: Role.PAYLOAD_READ,
    What.FRAME: Role.PAYLOAD_READ,
    What.MAD: Role.PAYLOAD_READ,
    What.RQ_WQE: Role.RECEIVE_WQE,
    What.SRQ_WQE: Role.RECEIVE_WQE,
    What.DOORBELL_RECORD: Role.DOORBELL_RECORD,
    What.DESCRIPTOR: Role.DESCRIPTOR,
    What.COPY: Role.COPY_READ,
}
_WRITES: dict[What, Role] = _BOTH | {
    What.PAYLOAD: Role.PAYLOAD_WRITE,
    What.FRAME: Role.PAYLOAD_WRITE,
    What.MAD: Role.PAYLOAD_WRITE,
    What.CQE: Role.CQE,
    What.EQE: Role.EQE,
    What.COMPLETION: Role.COMPLETION_WORD,
    What.COPY: Role.COPY_WRITE,
}
# Tuples by number: hashing an enumeration member for a dictionary is a Python call.
_READ_ROLES = tuple(_READS.get(what, Role.TABLE) for what in What)
_WRITE_ROLES = tuple(_WRITES.get(what, Role.TABLE) for what in What)
_TOLD: dict[Kind, Role] = {
    Kind.COMMAND: Role.COMMAND,
    Kind.RESET: Role.RESET,
    Kind.NOTE: Role.NOTE,
    Kind.FAULT: Role.NOTE,
    Kind.LINK: Role.LINK,
    Kind.CONTROL: Role.CONTROL,
}
_PLAIN: dict[Kind, tuple[Tlp, Role, bool]] = {
    Kind.MMIO_READ: (Tlp.MEMORY_READ, Role.REGISTER_READ, False),
    Kind.CONFIG_READ: (Tlp.CONFIG_READ, Role.CONFIG, False),
    Kind.CONFIG_WRITE: (Tlp.CONFIG_WRITE, Role.CONFIG, False),
    Kind.IRQ: (Tlp.MEMORY_WRITE, Role.INTERRUPT, True),
    Kind.BLUEFLAME: (Tlp.NONE, Role.ENTRY, False),
}
MSI_BYTES = 4
_FRAMES = (What.FRAME_WQE, What.FRAME)


def transaction_of(event: Event) -> Transaction:
    """Return the event as a transaction, each store into a BlueFlame line as one of its own."""
    kind = event.kind
    obj, length = event.obj, event.length
    text, data, told = "", event.data, event.told
    if kind is Kind.DMA_READ:
        tlp, role, upstream = Tlp.MEMORY_READ, _READ_ROLES[event.what], True
    elif kind is Kind.DMA_WRITE:
        tlp, role, upstream = Tlp.MEMORY_WRITE, _WRITE_ROLES[event.what], True
    elif kind is Kind.MMIO_WRITE:
        adapter = model_of(event.device).adapter
        if adapter is not None:
            role, obj = adapter.written(event)
        else:
            role, obj = Role.WINDOW if event.bar else Role.REGISTER_WRITE, 0
        tlp, upstream = Tlp.MEMORY_WRITE, False
    elif kind is Kind.WIRE:
        role = Role.RESPONSE if event.what is What.RESPONSE else Role.REQUEST
        tlp, upstream = Tlp.MESSAGE, True
        if (packet := packet_of(event)) is not None:
            role = Role.RESPONSE if is_answer(packet) else Role.REQUEST
            obj, length, text = packet.target_qpn, packet.end - packet.start, words(packet)
    elif told is not None:
        tlp, role, upstream, text = Tlp.NONE, _TOLD[kind], True, told.text
        data, length = text.encode(), len(text.encode())
    else:
        tlp, role, upstream = _PLAIN[kind]
        if kind is Kind.IRQ:
            length = MSI_BYTES
    noun = "QP"
    if event.what in _FRAMES:
        noun = adapter_of(event.device).frame_queues[kind is Kind.DMA_WRITE]
    return Transaction(
        event.number, event.time, event.device, tlp, role, upstream, event.address, length,
        data, obj, event.bar, text, event.number, told=told, noun=noun,
    )  # fmt: skip


def _may_begin(one: Transaction) -> bool:
    """Return whether a doorbell is the head of an entry, of which more may be stored."""
    return one.role is Role.DOORBELL and one.length == adapter_of(one.device).head


def transactions(events: Iterable[Event]) -> Iterator[Transaction]:
    """Yield the transactions of `events`, ordered by the time of their first event.

    An incomplete line holds back what follows until it is full or its device does other things.
    """
    held: deque[Transaction] = deque()
    lines: dict[str, Transaction] = {}
    for event in events:
        one = transaction_of(event)
        line = lines.pop(one.device, None)
        if one.role is Role.BLUEFLAME or _may_begin(one):
            if (
                line is not None
                and line.address + line.length == one.address
                and same_line(line, one)
            ):
                line.extend(one)
                one = line
            else:
                held.append(one)
            if one.length < adapter_of(one.device).line:
                lines[one.device] = one
        else:
            held.append(one)
        if not lines:
            yield from held
            held.clear()
    yield from held
