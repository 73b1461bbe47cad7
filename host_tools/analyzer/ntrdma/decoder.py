"""Describes stores into a peer's memory in words, and the events of one log with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.mad import MAD
from bluebridge.device.layout.ioat import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma import work
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.device.layout.ntrdma.port import PEER_INFO, PING, PortState, Spad
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.devices.model import DeviceKind, named
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.memory import INDEX_OF, Area, Memory, Use
from bluebridge.host_tools.analyzer.ntrdma.ports import Place, Ports
from bluebridge.host_tools.analyzer.ntrdma.resources import WORD, pieces, send_of
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS, StoreFinder

SHOWN = 4
"""Entries of one store that are shown at most."""
_PING_AT = PEER_INFO.field("ping").offset
_MAD_HEAD = 8
_FORMS: dict[int, Struct] = {
    CommandCode.PD_CREATE: layout.PD,
    CommandCode.PD_DELETE: layout.PD,
    CommandCode.MR_CREATE: layout.MR_CREATE,
    CommandCode.MR_DELETE: layout.MR_DELETE,
    CommandCode.MR_APPEND: layout.MR_APPEND,
    CommandCode.QP_CREATE: layout.QP_CREATE,
    CommandCode.QP_DELETE: layout.QP_DELETE,
    CommandCode.QP_MODIFY: layout.QP_MODIFY,
    CommandCode.RESOLVE: layout.RESOLVE,
}
_KEYED = range(CommandCode.MR_CREATE, CommandCode.QP_MODIFY + 1)
_WITH_MEMORY = (WorkCode.WRITE, WorkCode.WRITE_IMMEDIATE, WorkCode.READ)
_WITH_RECEIVE = range(WorkCode.SEND, WorkCode.WRITE_IMMEDIATE + 1)
_WITH_IMMEDIATE = (WorkCode.SEND_INVALIDATE, WorkCode.SEND_IMMEDIATE, WorkCode.WRITE_IMMEDIATE)

Describe = Callable[[Event], str]


def purpose(place: Place, receiver: Memory) -> str:
    """Describe the use of a place in a few words."""
    if place.use is Use.BELL and place.area is not None:
        return _bell(receiver, place.offset // WORD)
    if place.use is Use.BLOCK and place.offset == _PING_AT:
        return "ping"
    if place.region is not None:
        return f"data, region {place.region.key:#x} of {place.region.owner}"
    queue = place.queue
    return place.use.value if queue is None else f"{place.use.value}, {queue}"


def store_text(event: Event, place: Place, receiver: Memory) -> str:
    """Describe a store in words; empty when its place is unknown."""
    area, region = place.area, place.region
    if place.use is Use.MESSAGE:
        known = receiver.message == (event.address, _word(event))
        return f"interrupts {receiver.name}" if known else ""
    if region is not None:
        where = region.address + place.offset
        return f"{event.length} bytes of region {region.key:#x} of {region.owner} at {where:#x}"
    if area is None:
        return f"Ethernet frame, {event.length} bytes" if place.use is Use.FRAME else ""
    if place.use is Use.BLOCK:
        return _block(event, place.offset)
    if place.use is Use.BELL:
        return _bells(event, place.offset // WORD, receiver)
    if place.use in INDEX_OF:
        return _index(event, area)
    return _entries(place, area)


def scratchpad_text(index: int, data: bytes) -> str:
    """Describe the write of a scratchpad of the peer."""
    if index == Spad.PING:
        return _ping(data)
    return f"{Spad(index).name.lower().replace('_', ' ')} = {int.from_bytes(data, 'little'):#x}"


def _word(event: Event) -> int:
    return int.from_bytes(event.data[:WORD], "little")


def _bell(memory: Memory, number: int) -> str:
    rung = memory.bells.get(number)
    return f"bell {number} ({rung})" if rung else f"bell {number}"


def _bells(event: Event, first: int, receiver: Memory) -> str:
    """Describe a bell, or several when a processor's stores were joined."""
    values = enumerate(range(0, min(len(event.data), SHOWN * WORD), WORD), first)
    return "; ".join(
        f"{_bell(receiver, number)} = {_part(event.data, at, WORD)}" for number, at in values
    )


def _ping(data: bytes) -> str:
    state = named(PortState, PING.get(data, "state"))
    return f"ping {state} sequence={PING.get(data, 'sequence')}"


def _block(event: Event, offset: int) -> str:
    if offset == _PING_AT and len(event.data) == WORD:
        return _ping(event.data)
    end = offset + len(event.data)
    parts = (
        (item.name, _part(event.data, item.offset - offset, item.width))
        for item in PEER_INFO
        if offset <= item.offset and item.offset + item.width <= end
    )
    words = [f"{field}={value:#x}" for field, value in parts if value]
    return f"block {' '.join(words)}"


def _part(data: bytes, start: int, width: int) -> int:
    return int.from_bytes(data[start : start + width], "little")


def _index(event: Event, area: Area) -> str:
    value = _word(event)
    of = "" if area.queue is None else f" of {area.queue}"
    count = area.advance(value)
    more = "which cannot be" if count is None else f"{count} more"
    return f"{area.use.value}{of} = {value}, {more}"


def _entries(place: Place, area: Area) -> str:
    of = "" if area.queue is None else f" of {area.queue}"
    if not place.entries:
        return f"part of {area.use.value} {place.offset // area.entry}{of}"
    words, shown = _ENTRIES[area.use], []
    for slot, entry in place.entries[:SHOWN]:
        said = "(not kept)" if entry is None else words(entry)
        shown.append(f"{area.use.value} {slot}{of}: {said}")
        of = ""
    left = len(place.entries) - SHOWN
    return "; ".join([*shown, f"{left} more"] if left > 0 else shown)


def _command(command: bytes) -> str:
    op = layout.RESPONSE.get(command, "op")
    if op == CommandCode.CM_MESSAGE:
        attribute = MAD.get(bytes(_MAD_HEAD) + command[_MAD_HEAD:], "attr_id")
        return f"CM {named(CmAttribute, attribute)}"
    form = _FORMS.get(op)
    said = "" if form is None else form.describe(command).partition(" ")[2]
    if op == CommandCode.QP_MODIFY:
        said += f" ({named(QueueState, layout.QP_MODIFY.get(command, 'state'))})"
    return f"{named(CommandCode, op)} {said}".strip()


def _response(response: bytes) -> str:
    op = layout.RESPONSE.get(response, "op")
    form = layout.KEYED_RESPONSE if op in _KEYED else layout.RESPONSE
    status = form.get(response, "status")
    ending = "OK" if status == layout.OK else f"failed {status:#x}"
    values = [
        f"{item.name}={form.get(response, item.name):#x}"
        for item in form
        if item.name not in ("op", "status") and form.get(response, item.name)
    ]
    return f"{named(CommandCode, op)} {ending} {' '.join(values)}".strip()


def _send(entry: bytes) -> str:
    send = send_of(entry)
    words = [f"{named(WorkCode, send.op)} bytes={send.length}"]
    if send.op in _WITH_MEMORY:
        words.append(f"address={send.address:#x} key={send.key:#x}")
    if send.op in _WITH_RECEIVE:
        words.append(f"receive={send.receive}")
    if send.op in _WITH_IMMEDIATE:
        words.append(f"immediate={send.immediate:#x}")
    words += [f"to {length} bytes at {at:#x} of {key:#x}" for at, length, key in send.pieces[:2]]
    if send.status:
        words.append(named(WorkStatus, send.status))
    return " ".join(words)


def _receive(entry: bytes) -> str:
    count = work.RECV_ENTRY.get(entry, "piece_count")
    found = pieces(entry, work.RECV_ENTRY.size, count)
    where = "".join(f" {length} bytes at {at:#x} of {key:#x}" for at, length, key in found[:2])
    return f"pieces={count}{where}"


def _completion(entry: bytes) -> str:
    get = work.COMPLETION.get
    op, status = named(WorkCode, get(entry, "op")), named(WorkStatus, get(entry, "status"))
    return f"{op} {status} bytes={get(entry, 'length')}"


def _buffer(entry: bytes) -> str:
    get = work.FRAME_BUFFER.get
    return f"{get(entry, 'length')} bytes at {get(entry, 'address'):#x}"


def _frame(entry: bytes) -> str:
    length = work.FRAME_COMPLETION.get(entry, "length")
    return "dropped" if length == work.DROPPED else f"frame of {length} bytes"


_ENTRIES: dict[Use, Callable[[bytes], str]] = {
    Use.COMMANDS: _command,
    Use.RESPONSES: _response,
    Use.SENDS: _send,
    Use.RECEIVES: _receive,
    Use.COMPLETIONS: _completion,
    Use.BUFFERS: _buffer,
    Use.LENGTHS: _frame,
}


def decoder_of(reader: LogReader, wanted: Filter, describe: Describe) -> Describe:
    """Make a function that describes the wanted events, in order, beginning with `describe`.

    A port tells where its rings are long before they are used: so the events before the wanted ones
    are read as well, and only what the ports have told is kept of them. Raises `LogError` on
    damaged segments.
    """
    if not beyond_adapters(reader.meta["devices"]):
        return describe
    before = iter(()) if wanted.everything else LogReader(reader.folder).events(Filter(KINDS))
    decoder = Decoder(before)

    def described(event: Event) -> str:
        text, more = describe(event), decoder.more(event)
        return f"{text} NTRDMA {more}" if more else text

    return described


class Decoder:
    """Follows a log; `before` are its events, which it reads up to each event it is asked about."""

    def __init__(self, before: Iterator[Event]) -> None:
        self._finder = StoreFinder()
        self._ports = Ports()
        self._before = before
        self._next: Event | None = None
        self._windows: dict[str, tuple[str, int]] = {}
        """Per machine its peer, and the offset of a bus address to that at the peer."""

    def more(self, event: Event) -> str:
        """Return NTRDMA's meaning of the next event in words; empty for most events."""
        if event.kind not in KINDS:
            return ""
        self._catch_up(event.number)
        return self._observe(event)

    def _catch_up(self, number: int) -> None:
        """Observe the events before event `number`."""
        while True:
            if self._next is None:
                self._next = next(self._before, None)
            if self._next is None or self._next.number > number:
                return
            if self._next.number < number:
                self._observe(self._next)
            self._next = None

    def _observe(self, event: Event) -> str:
        store = self._finder.feed(event)
        if store is not None:
            place = self._ports.place(store)
            receiver = self._ports.memory(store.receiver)
            text = store_text(event, place, receiver)
            self._ports.observe(store, place)
            if not store.is_message and len(store.carrier.events) > 1:
                difference = store.carrier.events[-2].address - event.address
                self._windows[store.sender] = store.receiver, difference
            return text
        if event.kind is Kind.MMIO_WRITE:
            machine, kind = self._finder.machine(event.device)
            bridge = kind is DeviceKind.BRIDGE
            index = self._ports.scratchpad(event, machine) if bridge else None
            return "" if index is None else scratchpad_text(index, event.data)
        return self._descriptor(event) if event.what is What.DESCRIPTOR else ""

    def _descriptor(self, event: Event) -> str:
        """Describe a descriptor by what it stores, if it stores to the peer's memory."""
        window = self._windows.get(self._finder.machine(event.device)[0])
        if (
            window is None
            or len(event.data) < DESCRIPTOR_SIZE
            or DESCRIPTOR.get(event.data, "null")
        ):
            return ""
        peer, difference = window
        memory = self._ports.memory(peer)
        target = DESCRIPTOR.get(event.data, "destination") - difference
        if memory.message is not None and target == memory.message[0]:
            return f"interrupt of {peer}"
        place = self._ports.at(peer, target)
        return "" if place.use is Use.OTHER else purpose(place, memory)
