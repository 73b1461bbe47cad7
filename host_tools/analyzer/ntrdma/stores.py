"""Finds the stores of DMA engines and processors into a peer's memory in a log's events."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout import ioat
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import model_of

KINDS = frozenset((Kind.MMIO_WRITE, Kind.DMA_READ, Kind.DMA_WRITE, Kind.RESET))
"""The kinds of events that a `StoreFinder` looks at."""
MOST_EVENTS = 4096
"""Events of a descriptor or store that are kept at most; a copy has one for each register."""
_COUNTS = {ioat.CHANNEL.at("dma_count", number): number for number in range(ioat.MOST_CHANNELS)}


@dataclass(slots=True, eq=False)
class Begin:
    """The register write after which a DMA engine fetched descriptors."""

    event: Event
    descriptors: int = 0
    """Number of descriptors that were carried out since this write."""
    listed: bool = False
    """Whether this write is among the transactions of a work request."""


class Carrier:
    """The means of a store: a descriptor with the engine's copy, or a store into the window.

    `events` are in order and include those of its stores; the last ones come after them.
    """

    __slots__ = ("begin", "events", "listed", "machine")

    def __init__(self, machine: str, event: Event, begin: Begin | None = None) -> None:
        self.machine, self.events, self.begin = machine, [event], begin
        self.listed = False
        """Whether the carrier is among the transactions of a work request."""

    def add(self, event: Event) -> None:
        """Add an event of the same descriptor or store."""
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)

    @property
    def is_descriptor(self) -> bool:
        """Whether a DMA engine makes the store."""
        return self.events[0].what is What.DESCRIPTOR


@dataclass(slots=True, eq=False)
class Store:
    """Bytes that arrive in the memory of machine `receiver`, or an interrupt message."""

    carrier: Carrier
    event: Event
    receiver: str

    @property
    def is_message(self) -> bool:
        """Whether it is an interrupt message."""
        return self.event.what is What.MESSAGE

    @property
    def sender(self) -> str:
        """The machine that makes the store."""
        return self.carrier.machine


class StoreFinder:
    """Finds stores in events taken in order, in bounded memory."""

    def __init__(self) -> None:
        self._machines: dict[str, tuple[str, DeviceKind]] = {}
        self._begins: dict[tuple[str, int], Begin] = {}
        self._copies: dict[tuple[str, int], Carrier] = {}
        self._active: Carrier | None = None
        """The carrier of the next event of a window."""

    def feed(self, event: Event) -> Store | None:
        """Return the store that an event is, or None."""
        kind, what = event.kind, event.what
        if kind is Kind.MMIO_WRITE:
            self._register(event)
        elif kind is Kind.DMA_WRITE and what in (What.WINDOW, What.MESSAGE):
            carrier = self._active
            receiver = self.machine(event.device)[0]
            if carrier is None or receiver == carrier.machine:
                return None
            carrier.add(event)
            return Store(carrier, event, receiver)
        elif what is What.COPY:
            self._copied(event)
        elif what is What.DESCRIPTOR:
            self._descriptor(event)
        elif what is What.COMPLETION:
            self._completed(event)
        else:
            self._active = None
        return None

    def machine(self, device: str) -> tuple[str, DeviceKind]:
        """Return the machine that a device of the log is in, and the device's kind."""
        found = self._machines.get(device)
        if found is None:
            found = self._machines[device] = host_of(device), model_of(device).kind
        return found

    def _register(self, event: Event) -> None:
        machine, kind = self.machine(event.device)
        self._active = None
        if kind is DeviceKind.ENGINE:
            number = _COUNTS.get(event.address)
            if number is not None and event.bar == 0:
                self._begins[event.device, number] = Begin(event)
        elif kind is DeviceKind.BRIDGE and event.bar:
            self._active = Carrier(machine, event)

    def _descriptor(self, event: Event) -> None:
        channel = event.device, event.obj
        begin = self._begins.get(channel)
        if begin is not None:
            begin.descriptors += 1
        self._copies[channel] = Carrier(self.machine(event.device)[0], event, begin)

    def _copied(self, event: Event) -> None:
        channel = event.device, event.obj
        carrier = self._copies.get(channel)
        if carrier is None:  # the log was filtered, or begins here
            carrier = self._copies[channel] = Carrier(self.machine(event.device)[0], event)
        else:
            carrier.add(event)
        self._active = carrier

    def _completed(self, event: Event) -> None:
        carrier = self._copies.pop((event.device, event.obj), None)
        if carrier is not None:
            carrier.add(event)
        self._active = None
