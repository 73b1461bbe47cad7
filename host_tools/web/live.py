"""Follows a log for all open pages: counts by device and direction, and new activities.

Of each look at the log a limited number of events is assembled, others are counted by their heads.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler
from bluebridge.host_tools.web.lab import Lab
from bluebridge.host_tools.web.rows import row

TICK = 0.25
"""The seconds between two looks at the log."""
ASSEMBLED = 250
"""The most events of a tick that are assembled."""
HEADS = 4000
"""The most events of a tick whose heads are counted; rates are those of a sample beyond that."""
ROWS = 40
"""The most new activities that a tick reports."""
STATUS_TICKS = 8
"""The ticks between two questions to the device server for the state of its ports."""
PAGES = 16
"""The most pages that may be open."""
WAITING = 8
"""The most messages that wait for a slow page; beyond that the oldest is left out."""
_SILENCE = 5.0
"""The seconds after which a page is told that nothing happened, to notice that it has gone."""

_WAYS = {
    int(Kind.MMIO_WRITE): "down", int(Kind.MMIO_READ): "down", int(Kind.CONFIG_READ): "down",
    int(Kind.CONFIG_WRITE): "down", int(Kind.DMA_READ): "read", int(Kind.DMA_WRITE): "up",
    int(Kind.IRQ): "up", int(Kind.WIRE): "wire",
}  # fmt: skip
"""The direction of an event: from the host, read by the device, to the host, out of the port."""


class TooManyPages(Exception):
    """So many pages are open that no further one may follow the log."""


class Tick:
    """The counts of one look at the log: `[transactions, bytes]` by device and direction."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], list[int]] = {}
        self.counted = 0
        self.events = 0

    def add(self, device: int, kind: int, length: int) -> None:
        """Count an event."""
        self.counted += 1
        way = _WAYS.get(kind)
        if way is not None:
            count = self.counts.setdefault((device, way), [0, 0])
            count[0] += 1
            count[1] += length

    def as_json(self, names: list[str], seconds: float) -> dict[str, dict[str, list[float]]]:
        """Return counts per second; events that were not counted are of the same mixture."""
        seconds *= self.counted / max(self.events, 1)
        found: dict[str, dict[str, list[float]]] = {}
        for (device, way), (count, size) in self.counts.items():
            name = names[device] if device < len(names) else str(device)
            found.setdefault(name, {})[way] = [round(count / seconds), round(size / seconds)]
        return found


class Live:
    """A thread that follows a log for all open pages; `messages` is the stream to one page."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._pages: list[queue.Queue[str]] = []
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def messages(self) -> Iterator[str]:
        """Return server-sent events, until the page closes; raises `TooManyPages`."""
        mine: queue.Queue[str] = queue.Queue(WAITING)
        with self._lock:
            if len(self._pages) >= PAGES:
                raise TooManyPages
            self._pages.append(mine)
            self._wanted.set()
        return self._of(mine)

    def _of(self, mine: queue.Queue[str]) -> Iterator[str]:
        try:
            yield "retry: 1000\n\n"
            while True:
                try:
                    yield f"data: {mine.get(timeout=_SILENCE)}\n\n"
                except queue.Empty:
                    yield ": nothing happened\n\n"
        finally:
            with self._lock:
                self._pages.remove(mine)
                if not self._pages:
                    self._wanted.clear()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            try:
                self._follow()
            except Exception as error:  # a damaged log: the pages are told, and it goes on
                self._tell({"error": str(error) or type(error).__name__})
                time.sleep(1)

    def _follow(self) -> None:
        reader = LogReader(self._lab.reader.folder)
        look = Look(reader, Follower(reader, at_end=True))
        ticks = 0
        before = time.monotonic()
        while self._wanted.is_set():
            message: dict[str, Any] = {}
            if ticks % STATUS_TICKS == 0:
                message["ports"] = self._lab.ports()
            now = time.monotonic()
            message |= look.next(max(now - before, 0.001))
            before = now
            self._tell(message)
            ticks += 1
            time.sleep(TICK)

    def _tell(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, separators=(",", ":"))
        with self._lock:
            pages = list(self._pages)
        for page in pages:
            if page.full():
                page.get_nowait()  # this thread alone puts
            page.put_nowait(text)


class Look:
    """Finds the events that are new in a log since the last look."""

    def __init__(self, reader: LogReader, follower: Follower) -> None:
        self._reader = reader
        self._follower = follower
        self._names: list[str] = reader.meta["devices"]
        self._assembler = ActivityAssembler(self._names)
        self._quiet = 0

    def next(self, seconds: float) -> dict[str, Any]:
        """Return the rates of the last `seconds`, the activities that ended, and event counts."""
        tick = Tick()
        before = self._follower.number
        found: list[Activity] = []
        for event in islice(self._follower.new(), ASSEMBLED):
            device = self._names.index(event.device) if event.device in self._names else 255
            tick.add(device, event.kind, event.length)
            found += self._assembler.feed(event)
        assembled = tick.counted
        for head in islice(self._follower.heads(), HEADS):
            tick.add(*head)
        self._follower.skip()
        tick.events = self._follower.number - before
        skipped = tick.events - assembled
        found += self._rest(tick.events, skipped)
        found.sort(key=lambda each: each.number)
        left = max(0, len(found) - ROWS)
        return {
            "rates": tick.as_json(self._names, seconds),
            "events": tick.events,
            "end": self._follower.number,
            "skipped": skipped,
            "left": left,
            "rows": [row(each) for each in found[:ROWS]],
        }

    def _rest(self, events: int, skipped: int) -> list[Activity]:
        """Return unfinished activities when events were left out, or none came for two ticks."""
        self._quiet = 0 if events else self._quiet + 1
        if not skipped and self._quiet != 2:
            return []
        found = self._assembler.finish()
        self._assembler = ActivityAssembler(self._names)
        return found
