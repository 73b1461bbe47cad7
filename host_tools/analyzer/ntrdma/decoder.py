"""Describes the events of one log, with NTRDMA's stores by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.memory import Use
from bluebridge.host_tools.analyzer.ntrdma.ports import Ports
from bluebridge.host_tools.analyzer.ntrdma.store_text import purpose, scratchpad_text, store_text
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS, StoreFinder

Describe = Callable[[Event], str]


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
            return self._register(event)
        return self._descriptor(event) if event.what is What.DESCRIPTOR else ""

    def _register(self, event: Event) -> str:
        machine, kind = self._finder.machine(event.device)
        bridge = kind is DeviceKind.BRIDGE
        index = self._ports.scratchpad(event, machine) if bridge else None
        return "" if index is None else scratchpad_text(index, event.data)

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
