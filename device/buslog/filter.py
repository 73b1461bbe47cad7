"""Filters of events: by kind, BAR, device, time and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.buslog import Kind

MMIO = frozenset((Kind.MMIO_READ, Kind.MMIO_WRITE))


@dataclass(frozen=True, slots=True)
class Filter:
    """A selection of events; None in a field selects all. Times are seconds since the log began.

    `first` is the number of the first event. With `bar` only accesses of that BAR pass. With
    `device` the events of that device pass, with the marks of its guest and of the whole pair.
    """

    kinds: frozenset[Kind] | None = None
    bar: int | None = None
    since: float | None = None
    until: float | None = None
    device: str | None = None
    first: int = 0

    def raw(self, names: Sequence[str], started: int) -> RawFilter:
        """Convert the filter to the numbers of records.

        `names` and `started` are those of the meta file.
        """
        kinds = frozenset(Kind) if self.kinds is None else self.kinds
        if self.bar is not None:
            kinds &= MMIO
        numbers = range(256)
        if self.device is not None:
            numbers_of = [number for number, name in enumerate(names) if name == self.device]
            devices = frozenset(numbers_of)
            host = host_of(self.device)
            beside = frozenset(number for number, name in enumerate(names) if host_of(name) == host)
        else:
            devices = beside = frozenset(numbers)
        begin = 0 if self.since is None else started + round(self.since * 1e9)
        end = 1 << 64 if self.until is None else started + round(self.until * 1e9)
        bars = frozenset(numbers) if self.bar is None else frozenset((self.bar,))
        return RawFilter(frozenset(map(int, kinds)), bars, devices, beside, begin, end)

    @property
    def everything(self) -> bool:
        """Whether every event passes."""
        return self == Filter()


@dataclass(frozen=True, slots=True)
class RawFilter:
    """A `Filter` converted to the numbers of records; times are in monotonic ns.

    `beside` are the devices of the same guest, whose marks pass.
    """

    kinds: frozenset[int]
    bars: frozenset[int]
    devices: frozenset[int]
    beside: frozenset[int]
    begin: int
    end: int
