"""Rates, response times and latest work requests of a log while it is written, by interval."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.analysis.response_times import Times
from bluebridge.host_tools.analyzer.analysis.transfer import Transfer
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

WAYS = ("writes to the adapter", "reads of registers", "reads of memory", "writes to memory",
        "interrupts", "messages")  # fmt: skip


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
    """Counts events; `next_interval` returns the counts so far and starts again at zero.

    `latest` are the work requests that were completed last.

    `latest` holds the work requests that were completed last.
    """

    def __init__(self, devices: Sequence[str], latest: int = 8) -> None:
        self._assembler = TransferAssembler(devices)
        self._interval = Interval()
        self.latest: deque[Transfer] = deque(maxlen=latest)

    def add(self, events: Iterable[Event]) -> None:
        """Count events into the present interval."""
        interval = self._interval
        for event in events:
            interval.events += 1
            self._count(transaction_of(event))
            for transfer in self._assembler.feed(event):
                self._request(transfer)
        for transfer in self._assembler.done():
            self._request(transfer)

    def next_interval(self) -> Interval:
        """Return the counts since the last call and begin another interval."""
        interval, self._interval = self._interval, Interval()
        return interval

    def _count(self, one: Transaction) -> None:
        way = _way(one)
        if way:
            rate = self._interval.rates.setdefault((one.device, way), Rate())
            rate.count += 1
            rate.bytes += one.length

    def _request(self, transfer: Transfer) -> None:
        interval = self._interval
        interval.requests += 1
        self.latest.append(transfer)
        ends = transfer.of(Role.CQE, remote=False)
        if ends:
            key = transfer.device, transfer.opcode, transfer.posted_by.value
            times = interval.responses.setdefault(key, Times())
            times.add((ends[0].time - transfer.start) * 1e6, ends[0].number)


def _way(one: Transaction) -> str:
    """Return the one of `WAYS` that a transaction belongs to; empty for an event that is none."""
    if one.role is Role.INTERRUPT:
        return WAYS[4]
    if one.tlp is Tlp.MESSAGE:
        return WAYS[5]
    if one.tlp is Tlp.MEMORY_READ:
        return WAYS[2] if one.upstream else WAYS[1]
    if one.tlp is Tlp.MEMORY_WRITE:
        return WAYS[3] if one.upstream else WAYS[0]
    return ""
