"""Rates, response times and latest work requests of a log while it is written, by interval."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transfer

_CLASS = math.log(1.02)
P99 = 0.99

WAYS = ("writes to the adapter", "reads of registers", "reads of memory", "writes to memory",
        "interrupts", "messages")  # fmt: skip
_WAYS = {
    (Tlp.MEMORY_WRITE, False): WAYS[0],
    (Tlp.MEMORY_READ, False): WAYS[1],
    (Tlp.MEMORY_READ, True): WAYS[2],
    (Tlp.MEMORY_WRITE, True): WAYS[3],
    (Tlp.MESSAGE, True): WAYS[5],
}


@dataclass(slots=True)
class Times:
    """A distribution of microseconds by logarithm; `worst` is the event of the greatest."""

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = 0.0
    worst: int = 0
    classes: dict[int, int] = field(default_factory=dict)

    def add(self, value: float, number: int) -> None:
        """Count one time in microseconds, with the number of its event."""
        self.count += 1
        self.total += value
        if value < self.least:
            self.least = value
        if value >= self.greatest:
            self.greatest, self.worst = value, number
        place = int(math.log(value) / _CLASS) if value > 0.001 else -1000
        self.classes[place] = self.classes.get(place, 0) + 1

    def quantile(self, share: float) -> float:
        """Return the time that a `share` of all times does not exceed, within 2 %."""
        left = math.ceil(self.count * share)
        for place in sorted(self.classes):
            left -= self.classes[place]
            if left <= 0:
                upper = math.exp((place + 1) * _CLASS)
                return max(self.least, min(upper, self.greatest))
        return self.greatest

    def summary(self) -> tuple[float, float, float, float]:
        """Return least, mean, greatest and 99th percentile; there must be at least one time."""
        return self.least, self.total / self.count, self.greatest, self.quantile(P99)


@dataclass(slots=True)
class Rate:
    """Transactions and bytes in one interval."""

    count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Interval:
    """Counts of one interval of time.

    `rates` by device and one of `WAYS`; `responses`, in microseconds of wall-clock time from the
    first transaction to the send completion, by device, operation and `PostedBy` value.
    """

    events: int = 0
    requests: int = 0
    rates: dict[tuple[str, str], Rate] = field(default_factory=dict)
    responses: dict[tuple[str, str, str], Times] = field(default_factory=dict)


class LiveRates:
    """Counts events; `latest` are the work requests that were completed last."""

    def __init__(self, devices: Sequence[str], latest: int = 8) -> None:
        self._assembler = TransferAssembler(devices)
        self._interval = Interval()
        self.latest: deque[Transfer] = deque(maxlen=latest)

    def add(self, events: Iterable[Event]) -> None:
        """Count events into the present interval."""
        interval = self._interval
        for event in events:
            interval.events += 1
            one = transaction_of(event)
            way = _WAYS.get((one.tlp, one.upstream))
            if one.role is Role.INTERRUPT:
                way = WAYS[4]
            if way is not None:
                rate = interval.rates.setdefault((one.device, way), Rate())
                rate.count += 1
                rate.bytes += one.length
            for transfer in self._assembler.feed(event):
                self._request(transfer)
        for transfer in self._assembler.done():
            self._request(transfer)

    def next_interval(self) -> Interval:
        """Return the counts since the last call and begin another interval."""
        interval, self._interval = self._interval, Interval()
        return interval

    def _request(self, transfer: Transfer) -> None:
        interval = self._interval
        interval.requests += 1
        self.latest.append(transfer)
        ends = transfer.of(Role.CQE, remote=False)
        if ends:
            key = transfer.device, transfer.opcode, transfer.posted_by.value
            times = interval.responses.setdefault(key, Times())
            times.add((ends[0].time - transfer.start) * 1e6, ends[0].number)
