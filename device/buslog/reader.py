"""Reads a bus log, even while it is written or after its writer was killed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final, TypeVar

from bluebridge.device.buslog.names import DeviceName
from bluebridge.device.buslog.positions import SegmentPosition, about_last, positions
from bluebridge.device.buslog.record import (
    INDEX_EVERY,
    META_NAME,
    MOST_CAPTURE,
    RECORD,
    function_of,
    host_of,
)
from bluebridge.device.layout.buslog import VERSION, Kind, What
from bluebridge.device.layout.events import TELLING, Fact, Told, Values
from bluebridge.printable import printable

MMIO = frozenset((Kind.MMIO_READ, Kind.MMIO_WRITE))

Head = tuple[int, int, int, int, int]
"""Number of an event, ns since the log began, numbers of device and kind, length in bytes."""
_Item = TypeVar("_Item")

MOST_META: Final = 1 << 20
"""Bytes of a meta file that are read."""
PART_BYTES: Final = 1 << 18
"""Bytes of a segment that are read at once."""
MOST_KEPT: Final = MOST_CAPTURE + 1024
"""Upper bound for the bytes kept of one event, with the headers of a message."""
MOST_LENGTH: Final = 1 << 31
"""Upper bound for the length of one event in bytes.

No queue pair can be told to send longer messages (`msg_max`).
"""

_HEAD: Final = Struct("<QBB14xII8x")
"""The fields of `RECORD` that `Head` has, and the number of captured bytes."""
_KIND_AND_KEPT: Final = Struct("<9xB18xI8x")
"""The fields of `RECORD` for kind and number of captured bytes."""
_MARK: Final[int] = Fact.MARK.value
_GUEST_MARK: Final[int] = Fact.GUEST_MARK.value
_NO_KINDS: set[int] = set()
_TELLING: Final = frozenset(map(int, TELLING))
_FACTS: Final = {fact.value: fact for fact in Fact}
_KINDS: Final = {int(kind): kind for kind in Kind}
_WHATS: Final = {int(what): what for what in What}


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
        """Convert the filter to numbers of records; `names` and `started` are in the meta file."""
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
    """A `Filter` in numbers of records and monotonic ns; marks of devices `beside` pass, too."""

    kinds: frozenset[int]
    bars: frozenset[int]
    devices: frozenset[int]
    beside: frozenset[int]
    begin: int
    end: int


class LogError(Exception):
    """Raised when a log or an output file cannot be used; the text says what to do."""


@dataclass(slots=True)
class Event:
    """An event of a log; `time` is in seconds since the log began.

    `data` are the captured bytes, which may be only the first ones. `work` names the work request
    that the event belongs to (`bluebridge.device.buslog.record`), 0 for none. `told` is the fact
    that it is, with printable texts; None for transfers.
    """

    number: int
    time: float
    device: str
    kind: Kind
    bar: int
    what: What
    obj: int
    address: int
    length: int
    data: bytes
    work: int = 0
    told: Told | None = None

    @property
    def fact(self) -> Fact | None:
        """The fact that the device told; None for transfers."""
        return None if self.told is None else self.told.fact

    @property
    def values(self) -> Values:
        """The values of the fact's fields; none for transfers."""
        return {} if self.told is None else self.told.values

    @property
    def text(self) -> str:
        """The fact in a line of words; empty for transfers."""
        return "" if self.told is None else self.told.text


_Records = Callable[[Path, int, bytes, int, RawFilter | None], Iterator[_Item]]


def _names(meta: dict[str, Any]) -> list[str]:
    """Return the names of a log's devices, adapters with their card."""
    cards = meta.get("cards", {})
    found = [printable(str(name)) for name in meta["devices"]]
    return [DeviceName(name, str(cards.get(function_of(name), ""))) for name in found]


class LogReader:
    """Reads the log in a folder, or that in the folder `bus` of a run's folder. Raises `LogError`.

    `cut` says whether the segment that was read last ends in the middle of a record.
    """

    def __init__(self, folder: Path) -> None:
        self.cut = False
        self.folder = _locate(folder)
        try:
            with (self.folder / META_NAME).open("rb") as file:
                self.meta: dict[str, Any] = json.loads(file.read(MOST_META))
            version = self.meta["version"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise LogError(f"{folder} holds no readable {META_NAME}: {error}") from error
        self._read = 0  # number of the event that is read next
        self._taken = 0
        self._when = 0
        if version != VERSION:
            raise LogError(
                f"{folder} is a bus log of version {version}, this is a reader of {VERSION}: "
                "use the bluebridge that wrote it"
            )

        try:
            self._names: list[str] = _names(self.meta)
            self.meta["devices"] = self._names
            self._started = int(self.meta["started_monotonic_ns"])
        except (KeyError, TypeError, ValueError) as error:
            raise LogError(f"{folder} holds a {META_NAME} that is damaged: {error}") from error

    @property
    def dropped(self) -> bool:
        """Whether older events were deleted to keep the log bounded."""
        return bool(self.meta.get("segments_dropped"))

    @property
    def dropped_text(self) -> str:
        """A line that tells the user which events were deleted, and how to keep more."""
        events, size = self.meta.get("events_dropped", 0), self.meta.get("bytes_dropped", 0)
        return (
            f"the oldest {events} events ({size / (1 << 20):.1f} MiB) were deleted to keep the log "
            "within its limit (--log-limit)"
        )

    @property
    def stopped(self) -> str:
        """The reason why `up --stop-on` ended the log before its server; empty if it did not."""
        return printable(str(self.meta.get("stopped", "")))

    def __iter__(self) -> Iterator[Event]:
        """Yield all events, oldest first; an incomplete record at the end is left out."""
        return self.events(_EVERYTHING)

    def events(self, wanted: Filter) -> Iterator[Event]:
        """Yield the events that pass the filter. Raises `LogError` on damaged segments."""
        raw = wanted.raw(self._names, self._started)
        begin = None if wanted.since is None else raw.begin
        places = positions(self.folder, begin, wanted.first)
        only = None if wanted.everything else raw
        for event in self._events(places, only, self._records):
            if event.number >= wanted.first:
                yield event

    def heads(self, wanted: Filter) -> Iterator[Head]:
        """Yield the heads of the events in the filter's time range, twice as fast as `events`.

        Kind, BAR and device of the filter are ignored. Raises `LogError` on damaged segments.
        """
        raw = wanted.raw(self._names, self._started)
        places = positions(self.folder, None if wanted.since is None else raw.begin, wanted.first)
        for head in self._events(places, raw, self._heads):
            if head[0] >= wanted.first:
                yield head

    def check_event(self, number: int) -> None:
        """Raise `LogError` when the log ends before event `number`."""
        fresh = LogReader(self.folder)
        if not number or next(fresh.heads(Filter(first=number)), None) is not None:
            return
        last = deque(fresh.heads(Filter(first=max(0, about_last(self.folder) - INDEX_EVERY))), 1)
        there = f"its last event is {last[0][0]}" if last else "it has no events"
        raise LogError(f"the log has no event {number}: {there}")

    def tail(self) -> Iterator[Event]:
        """Yield the events of the last two segments only."""
        last = deque(positions(self.folder, None, 0), 2)
        return self._events(last, None, self._records)

    def records(self, path: Path, data: bytes) -> Iterator[Event]:
        """Yield the complete records of `data`, a part of segment `path`, all as number 0."""
        for event in self._records(path, 0, data, 0, None):
            event.number = 0
            yield event

    def _events(
        self, places: Iterable[SegmentPosition], only: RawFilter | None, records: _Records[_Item]
    ) -> Iterator[_Item]:
        self._read = 0
        for place in places:
            if place.number is not None:
                self._read = place.number
            try:
                segment = place.path.open("rb", buffering=0)
            except FileNotFoundError:
                continue  # the writer has deleted it meanwhile
            with segment:
                segment.seek(place.offset)
                yield from self._segment(place, segment, only, records)
            if only is not None and self._when > only.end:
                return

    def _segment(
        self,
        place: SegmentPosition,
        segment: BinaryIO,
        only: RawFilter | None,
        records: _Records[_Item],
    ) -> Iterator[_Item]:
        """Yield the events from a position on that pass; a part of the file is in memory at a time.

        Events are in order of time, so what follows a part that ends after `only.end` is not read.
        """
        self.cut = False
        offset, rest = place.offset, b""
        # A record that is longer than a part is read in parts that double.
        while part := segment.read(max(PART_BYTES, len(rest))):
            data = rest + part
            yield from records(place.path, offset, data, self._read, only)
            rest = data[self._taken :]
            offset += self._taken
            if only is not None and self._when > only.end:
                return
        self.cut = bool(rest)

    def _records(
        self, path: Path, offset: int, data: bytes, number: int, only: RawFilter | None
    ) -> Iterator[Event]:
        """Yield the events that pass of `data`, which begins at byte `offset` of `path`.

        An incomplete record at the end is left out. Afterwards `_read` is the number of the next
        record, `_taken` the bytes of all, `_when` a time of theirs.
        """
        names, start = self._names, self._started
        position, end, size = 0, len(data), RECORD.size
        unpack, look = RECORD.unpack_from, _KIND_AND_KEPT.unpack_from
        others = _NO_KINDS if only is None else _KINDS.keys() - only.kinds
        when = self._when
        while position + size <= end:
            if others:  # most of a log that is searched for something rare
                kind, kept = look(data, position)
                if kind in others and kept <= MOST_KEPT:
                    if position + size + kept > end:
                        break
                    position += size + kept
                    number += 1
                    continue
            when, device, kind, bar, what, obj, address, length, kept, work = unpack(data, position)
            if kind not in _KINDS or what not in _WHATS or kept > MOST_KEPT or length > MOST_LENGTH:
                raise LogError(f"{path} is damaged before byte {offset + position + size}")
            if position + size + kept > end:
                break
            position += size
            told, fact = None, 0
            if kind in _TELLING:
                try:
                    told = _told(kind, bar, data[position : position + kept])
                except ValueError as error:
                    place = f"before byte {offset + position + kept}"
                    raise LogError(f"{path} is damaged {place}: {error}") from error
                fact, bar = bar, 0
            if only is None or (
                kind in only.kinds
                and (
                    device in only.devices
                    or (fact == _MARK or (fact == _GUEST_MARK and device in only.beside))
                )
                and bar in only.bars
                and only.begin <= when <= only.end
            ):
                yield Event(
                    number, (when - start) / 1e9,
                    names[device] if device < len(names) else str(device), _KINDS[kind], bar,
                    _WHATS[what], obj, address, length, data[position : position + kept], work,
                    told,
                )  # fmt: skip
            position += kept
            number += 1
        self._read, self._taken, self._when = number, position, when

    def _heads(
        self, path: Path, offset: int, data: bytes, number: int, only: RawFilter | None
    ) -> Iterator[Head]:
        """Yield heads of events from the same arguments as `_records`."""
        start, begin = self._started, 0 if only is None else only.begin
        final = 1 << 64 if only is None else only.end
        position, end, size = 0, len(data), RECORD.size
        unpack, when = _HEAD.unpack_from, self._when
        while position + size <= end:
            when, device, kind, length, kept = unpack(data, position)
            if kind not in _KINDS or kept > MOST_KEPT or length > MOST_LENGTH:
                raise LogError(f"{path} is damaged before byte {offset + position + size}")
            if position + size + kept > end:
                break
            position += size + kept
            if begin <= when <= final:
                yield number, when - start, device, kind, length
            number += 1
        self._read, self._taken, self._when = number, position, when


_EVERYTHING: Final = Filter()


def _told(kind: int, number: int, data: bytes) -> Told:
    """Return the fact in a record; raises `ValueError` if it is damaged or not known."""
    fact = _FACTS.get(number)
    if fact is None or fact.kind != kind:
        raise ValueError(f"there is no fact {number}")
    values = fact.unpack(data)
    shown = {name: printable(values[name]) for name, form in fact.fields.items() if form.text}
    return Told(fact, values | shown)


def _locate(folder: Path) -> Path:
    for candidate in (folder, folder / "bus"):
        if (candidate / META_NAME).is_file():
            return candidate
    raise LogError(f"{folder} holds no bus log ({META_NAME} is missing)")
