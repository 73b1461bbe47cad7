"""A log in pages: activities from an event on, found by the log's index, within a time limit.

Nothing is kept between two pages but the activities that were looked at last, so memory does not
grow with the log, and the first page of a long log takes no longer than that of a short one.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler, ActivityKind
from bluebridge.host_tools.analyzer.activity.routine import routine
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.transaction import TimeModel
from bluebridge.host_tools.web.rows import detail, row
from bluebridge.host_tools.web.timeline import peers
from bluebridge.host_tools.web.words import AFTER, Words

LEAD = 1024
"""The number of events before the first wanted one that are read for activities begun before it."""
SPAN = 100_000
"""The number of events in which a chosen activity has to end."""
OPENING = 0.25
"""The time limit of the search for the work request on which a page opens."""
SECONDS = 0.4
"""The time limit of one page; a search that takes longer goes on with the next page."""
_LEAST = 2048  # The least number of events of a page, however slow the machine
_MOST = 16 * _LEAST  # The most events that are assembled at once when pages are turned back
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Query:
    """The activities to list, any where a field is empty; without `routine` no routine ones."""

    kind: str = ""
    device: str = ""
    failed: bool = False
    text: str = ""
    routine: bool = True

    @property
    def texts(self) -> tuple[str, str]:
        """The texts that are among the words of whatever passes, in lower case."""
        return self.text.lower(), self.kind.lower()

    def passes(self, activity: Activity) -> bool:
        """Whether the activity fulfils all fields of the query but `text`."""
        return (
            self.kind in ("", activity.kind.value)
            and (self.device in ("", host_of(activity.device)) or activity.concerns(self.device))
            and (not self.failed or activity.status not in ("", "OK"))
            and (self.routine or not routine(activity))
        )


@dataclass(slots=True)
class Page:
    """Activities in order, of events `first` to before `end`; `done`: none come after it now."""

    first: int
    found: list[Activity] = field(default_factory=list)
    end: int = 0
    done: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the page as the program in the browser gets it."""
        rows = [row(each) for each in self.found]
        return {"first": self.first, "rows": rows, "end": self.end, "done": self.done}


class Book:
    """The activities of a log, for several threads; every method may raise `LogError`."""

    def __init__(self, folder: Path, model: TimeModel | None = None) -> None:
        self.folder = folder
        self._model = model
        self._lock = Lock()
        self._words = Words(folder)
        self._details: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._played: dict[int, Event] = {}  # the events of the activity that was read last

    def page(self, first: int, count: int, query: Query, seconds: float = SECONDS) -> Page:
        """Return up to `count` activities that began with event `first` or later."""
        if query.text:
            self.gather_words()
        with self._lock:
            first = self._words.after(first, query.texts)
            return read(LogReader(self.folder), _Collected(query, first), count, seconds)

    def before(self, end: int, count: int, query: Query, seconds: float = SECONDS) -> Page:
        """Return the last `count` activities that began before event `end`, in the time limit."""
        deadline = time.monotonic() + seconds
        found: list[Activity] = []
        first, span = end, _LEAST
        with self._lock:
            while first and len(found) < count and (first == end or time.monotonic() < deadline):
                first = self._words.before(first, query.texts)
                start = max(0, first - span)
                piece = read(
                    LogReader(self.folder), _Collected(query, start), seconds=seconds, until=first
                )
                found = piece.found + found
                first, span = start, min(2 * span, _MOST)
        if len(found) > count:
            found = found[-count:]
            first = found[0].number
        return Page(first, found, end, first == 0)

    def opening(self, end: int) -> int | None:
        """Return the activity on which a page opens, or None; the log has events up to `end`.

        It is the last that failed of a failed test, else the first RDMA WRITE, READ or request.
        """
        if self.folder.name == "bus" and any(self.folder.parent.glob("*.html")):  # of a test
            failed = self.before(end, 1, Query(failed=True), OPENING).found
            if failed:
                return failed[0].number
        requests = self.page(0, _MOST, Query(ActivityKind.WORK_REQUEST.value), OPENING).found
        told = [each for each in requests if each.name.startswith("RDMA_")]
        return next((each.number for each in told or requests), None)

    def detail(self, number: int) -> dict[str, Any] | None:
        """Return the activity that has event `number`, and its steps; None if none has it."""
        with self._lock:
            known = self._details.get(number)
            if known is not None:
                return known
            reader = LogReader(self.folder)
            activity, events, ended = _one(reader, number)
            if activity is None:
                return None
            made = detail(activity, events, peers(reader.meta["devices"]), self._model)
            steps = (each["number"] for each in made["list"])
            self._played = {number: events[number] for number in steps if number in events}
            if ended:
                self._details[number] = made
            if len(self._details) > _LOOKED_AT:
                self._details.popitem(last=False)
            return made

    def event(self, number: int) -> Event | None:
        """Return an event by its number; None if the log has none of this number."""
        with self._lock:
            if number in self._played:
                return self._played[number]
            event = next(LogReader(self.folder).events(Filter(first=number)), None)
        return event if event is not None and event.number == number else None

    def whole(
        self, first: int, count: int, query: Query, *, at_end: bool = False
    ) -> tuple[Page, list[dict[str, Any]]]:
        """Return a page of few activities with steps, the last if `at_end`; no time limit."""
        with self._lock:
            reader = LogReader(self.folder)
            events: dict[int, Event] = {}
            most = 1 << 30 if at_end else count
            page = read(reader, _Collected(query, first), most, events=events)
            if len(page.found) > count:
                page.found = page.found[-count:]
                page.first = page.found[0].number
            twins = peers(reader.meta["devices"])
            return page, [detail(each, events, twins, self._model) for each in page.found]

    def gather_words(self) -> None:
        """Gather the words of the log, so that searches find their place in it soon."""
        if about_last(self.folder) > SPAN:
            self._words.gather()

    def forget(self) -> None:
        """Forget the kept activities, since a log that has grown may have more steps of them."""
        with self._lock:
            self._details.clear()
            self._played.clear()


def _events(reader: LogReader, first: int) -> Iterator[Event]:
    return reader.events(Filter(first=max(0, first - LEAD)))


def read(
    reader: LogReader,
    into: Gathered,
    count: int = 1 << 30,
    seconds: float = math.inf,
    until: int | None = None,
    events: dict[int, Event] | None = None,
) -> Page:
    """Return the activities of `into.first` to before `until`; `events` takes what was read."""
    deadline = time.monotonic() + seconds
    first = into.first
    assembler = ActivityAssembler(reader.meta["devices"])
    stop, number = until, first - 1
    for event in _events(reader, first):
        number = event.number
        if stop is None and number & 63 == 0 and number - first >= _LEAST:
            stop = number if time.monotonic() > deadline else None  # the clock is read seldom
        if stop is not None and number >= stop + AFTER:
            break
        if events is not None:
            events[number] = event
        into.look(event)
        into.add(assembler.feed(event))
        if stop is None and len(into.found) >= count:
            stop = number + 1
    into.add(assembler.finish())
    done = stop is None
    end = number + 1 if stop is None else stop
    found = sorted((each for each in into.found if each.number < end), key=attrgetter("number"))
    if len(found) > count:
        end, done = found[count].number, False
        found = found[:count]
    return Page(first, found, end, done)


class Gathered:
    """The collection from a part of a log that begins with event `first`."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.found: list[Activity] = []

    def look(self, event: Event) -> None:
        """Take an event before it is assembled."""

    def add(self, activities: list[Activity]) -> None:
        """Take activities that have ended."""


class _Collected(Gathered):
    """Activities that pass a query; with a text, also the numbers of the events that have it."""

    def __init__(self, query: Query, first: int) -> None:
        super().__init__(first)
        self._query = query
        self._text = query.text.lower()
        self._hits: set[int] = set()

    def look(self, event: Event) -> None:
        """Note whether the event's words or its address have the text."""
        if self._text and any(self._text in each for each in said(event)):
            self._hits.add(event.number)

    def add(self, activities: list[Activity]) -> None:
        """Keep the activities that pass the query."""
        for each in activities:
            if each.number >= self.first and self._query.passes(each) and self._says(each):
                self.found.append(each)

    def _says(self, activity: Activity) -> bool:
        text = self._text
        return (
            not text
            or any(text in each.lower() for each in words_of(activity))
            or any(one.number in self._hits for one in activity.transactions)
        )


def said(event: Event) -> tuple[str, str]:
    """Return what a search looks into of an event: its words in lower case, and its address."""
    return decode(event).lower(), f"{event.address:#x}"


def words_of(activity: Activity) -> tuple[str, ...]:
    """Return the words of an activity that a search looks into, besides those of its steps."""
    return activity.title, activity.status, activity.kind.value, *activity.notes


def _one(reader: LogReader, number: int) -> tuple[Activity | None, dict[int, Event], bool]:
    assembler = ActivityAssembler(reader.meta["devices"])
    events: dict[int, Event] = {}
    for event in _events(reader, number):
        if event.number > number + SPAN:
            break
        events[event.number] = event
        for each in assembler.feed(event):
            if _has(each, number):
                return each, events, True
    found = next((each for each in assembler.finish() if _has(each, number)), None)
    return found, events, False


def _has(activity: Activity, number: int) -> bool:
    return activity.number == number or any(
        one.number == number and not one.repeated for one in activity.transactions
    )
