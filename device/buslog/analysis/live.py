"""What a live view shows: rates since the last look, response times, the latest work requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bluebridge.device.buslog.analysis.classify import transaction_of
from bluebridge.device.buslog.analysis.fold import Folder
from bluebridge.device.buslog.analysis.traffic import P99, Times
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.analysis.transfer import Transfer
from bluebridge.device.buslog.reader import Event

WAYS = ("writes to the adapter", "reads of registers", "reads of memory", "writes to memory",
        "interrupts", "messages")  # fmt: skip


@dataclass(slots=True)
class Rate:
    """Transactions and bytes since the last look."""

    count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Look:
    """One picture; `responses` are of work requests by operation and way, by wall clock."""

    events: int = 0
    requests: int = 0
    rates: dict[tuple[str, str], Rate] = field(default_factory=dict)
    responses: dict[tuple[str, str, str], Times] = field(default_factory=dict)


class Live:
    """Takes events as they come; `look` gives a picture and starts the next one."""

    def __init__(self, devices: Sequence[str], latest: int = 8) -> None:
        self._folder = Folder(devices)
        self._look = Look()
        self.latest: deque[Transfer] = deque(maxlen=latest)

    def add(self, events: Iterable[Event]) -> None:
        """Count events."""
        look = self._look
        for event in events:
            look.events += 1
            self._count(transaction_of(event))
            for transfer in self._folder.feed(event):
                self._request(transfer)
        for transfer in self._folder.done():
            self._request(transfer)

    def look(self) -> Look:
        """What came since the last one."""
        look, self._look = self._look, Look()
        return look

    def _count(self, one: Transaction) -> None:
        way = _way(one)
        if way:
            rate = self._look.rates.setdefault((one.device, way), Rate())
            rate.count += 1
            rate.bytes += one.length

    def _request(self, transfer: Transfer) -> None:
        look = self._look
        look.requests += 1
        self.latest.append(transfer)
        ends = transfer.of(Role.CQE, remote=False)
        if ends:
            key = transfer.device, transfer.opcode, transfer.path.value
            times = look.responses.setdefault(key, Times())
            times.add((ends[0].time - transfer.start) * 1e6, ends[0].number)


def _way(one: Transaction) -> str:
    """Which of `WAYS`; empty for what does not cross anything."""
    if one.role is Role.INTERRUPT:
        return WAYS[4]
    if one.tlp is Tlp.MESSAGE:
        return WAYS[5]
    if one.tlp is Tlp.MEMORY_READ:
        return WAYS[2] if one.upstream else WAYS[1]
    if one.tlp is Tlp.MEMORY_WRITE:
        return WAYS[3] if one.upstream else WAYS[0]
    return ""


def summary(times: Times) -> tuple[float, float, float, float]:
    """Least, mean, greatest, 99 %."""
    return times.least, times.total / times.count, times.greatest, times.quantile(P99)
