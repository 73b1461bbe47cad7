"""The record that a test waits for in the bus log, and the records that came nearest to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Values
from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import HEADER, KINDS, table_line
from bluebridge.host_tools.errors import UsageError

_NEAREST = 5
"""The number of records shown of those that failed one condition only."""
_LAST = 5
"""The number of records shown when none came near."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event of the bus log with its decoded meaning; `str` gives its line of the table."""

    event: Event

    @property
    def guest(self) -> str:
        """The name of the guest whose device took part in the transaction."""
        return self.event.device

    @property
    def time(self) -> float:
        """The time of the event in seconds since the log began."""
        return self.event.time

    @property
    def kind(self) -> Kind:
        """The kind of transaction."""
        return self.event.kind

    @property
    def what(self) -> What:
        """The purpose of a DMA transfer."""
        return self.event.what

    @property
    def obj(self) -> int:
        """The number of the queue or region that a DMA transfer is for."""
        return self.event.obj

    @property
    def values(self) -> Values:
        """The fields of what a device told (`device/layout/events.py`); none of a transfer."""
        return self.event.values

    @property
    def bar(self) -> int:
        """The BAR of an MMIO access."""
        return self.event.bar

    @property
    def address(self) -> int:
        """The offset in the BAR, guest-physical address or vector, depending on the kind."""
        return self.event.address

    @property
    def length(self) -> int:
        """The number of bytes on the bus."""
        return self.event.length

    @property
    def data(self) -> bytes:
        """The bytes on the bus, or their beginning: the log captures 64 unless told otherwise."""
        return self.event.data

    @property
    def decoded(self) -> str:
        """The transaction in words, such as `UAR[128].send qpn=0x49`."""
        return decode(self.event)

    def __str__(self) -> str:
        return table_line(self.event)


Predicate = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The named conditions of a test on a record; all of them must hold."""

    conditions: tuple[tuple[str, Predicate], ...]

    @classmethod
    def of(
        cls,
        predicate: Predicate | None,
        kind: str | Kind | None,
        guest: str | None,
        containing: str,
        bar: int | None,
        matching: str,
    ) -> Wanted:
        """Return the conditions that the arguments stand for; those not given always hold.

        Raises `UsageError` for an unknown kind and for a text `matching` that is no condition.
        """
        found: list[tuple[str, Predicate]] = []
        if kind is not None:
            kinds = _kinds(kind)
            name = kind.name.lower() if isinstance(kind, Kind) else kind
            found.append((f"kind={name}", lambda record: record.kind in kinds))
        if guest is not None:
            found.append((f"guest={guest}", lambda record: record.guest == guest))
        if bar is not None:
            mmio = KINDS["mmio"]
            found.append((f"bar={bar}", lambda it: it.kind in mmio and it.bar == bar))
        if containing:
            found.append(
                (f"containing={containing!r}", lambda record: containing in record.decoded)
            )
        if matching:
            found.append((f"matching={matching!r}", _matching(matching)))
        if predicate is not None:
            found.append((_name(predicate), predicate))
        return cls(tuple(found))

    def __str__(self) -> str:
        return ", ".join(name for name, _ in self.conditions) or "any record"

    def accepts(self, record: Record) -> bool:
        """Whether all conditions hold for a record; none is evaluated once one has failed."""
        return all(holds(record) for _, holds in self.conditions)

    def failed(self, record: Record) -> list[str]:
        """Return the names of the conditions that do not hold, at most two of them."""
        failures = (name for name, holds in self.conditions if not _holds(holds, record))
        return list(islice(failures, 2))


def _holds(condition: Predicate, record: Record) -> bool:
    """Whether a condition holds; a test's function that raises on a record counts as false."""
    try:
        return condition(record)
    except Exception:
        return False


class Misses:
    """The records that were not accepted, by the one condition that failed, and the last ones."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._near: dict[str, deque[Record]] = {}
        self._counts: dict[str, int] = {}
        self._last: deque[Record] = deque(maxlen=_LAST)
        self._count = 0

    def add(self, record: Record) -> None:
        """Add a record that was not accepted."""
        self._count += 1
        self._last.append(record)
        if len(self._wanted.conditions) < 2:
            return  # each record fails the only condition
        failed = self._wanted.failed(record)
        if len(failed) == 1:
            name = failed[0]
            self._near.setdefault(name, deque(maxlen=_NEAREST)).append(record)
            self._counts[name] = self._counts.get(name, 0) + 1

    def lines(self) -> Iterator[str]:
        """Yield the records that came nearest, or else the last ones, as lines."""
        if not self._count:
            yield "nothing was recorded"
            return
        yield HEADER
        for name, records in sorted(self._near.items(), key=lambda item: self._counts[item[0]]):
            count = self._counts[name]
            shown = f", the last {_NEAREST}" if count > _NEAREST else ""
            yield f"all but {name} ({count}{shown}):"
            yield from map(str, records)
        if not self._near:
            yield f"none of {self._count} came near; the last:"
            yield from map(str, self._last)


def _matching(text: str) -> Predicate:
    try:
        condition = Condition.parse(text)
    except ConditionError as error:
        raise UsageError(f"matching: {error}") from error
    return lambda record: condition.matches(record.event, decode)


def _name(predicate: Predicate) -> str:
    name = getattr(predicate, "__name__", repr(predicate))
    code = getattr(predicate, "__code__", None)
    line = f" of line {code.co_firstlineno}" if code is not None else ""
    return f"{'the lambda' if name == '<lambda>' else name}{line}"


def _kinds(kind: str | Kind) -> frozenset[Kind]:
    if isinstance(kind, Kind):
        return frozenset((kind,))
    if kind in KINDS:
        return KINDS[kind]
    single = {each.name.lower(): each for each in Kind}
    if kind not in single:
        raise UsageError(f"the bus log has no kind {kind!r}", f"use one of {', '.join(KINDS)}")
    return frozenset((single[kind],))
