"""The lab of a page: hosts, functions, their state, the actions of the buttons, and its news.

Of each look at the log a limited number of events is assembled, others are counted by their heads.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.web.rows import row
from bluebridge.host_tools.web.timeline import Function, hosts, peers

_SECONDS = 2.0  # The seconds that the device server may take to answer

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


class Lab:
    """A log, and the control socket of the server that writes it, if one runs."""

    def __init__(self, reader: LogReader, title: str, socket: Path | None = None) -> None:
        self.reader = reader
        self.title = title
        self.socket = socket

    def description(self) -> dict[str, Any]:
        """Return what does not change: hosts with their functions, and the wires between them."""
        devices = self.reader.meta["devices"]
        began, started = self.reader.meta.get("started_ns"), ""  # by its writer's clock
        if isinstance(began, int):
            started = datetime.fromtimestamp(began / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        found = hosts(devices)
        functions = {
            host: [asdict(each) for each in functions] for host, functions in found.items()
        }
        return {
            "title": self.title if self.socket else f"hosts {' and '.join(found)}: {self.title}",
            "started": started,
            "hosts": functions,
            "peers": peers(devices),
            "running": self.socket is not None,
            "dropped": self.reader.dropped_text if self.reader.dropped else "",
        }

    def ports(self) -> list[dict[str, Any]] | None:
        """Return the state of each HCA port; None when no server answers."""
        if self.socket is None:
            return None
        with contextlib.suppress(LabError):
            lines = hardware.tell(self.socket, "status", _SECONDS)
            return [state for line in lines if (state := _state(line))]
        return None

    def act(self, word: str, name: str, action: str = "") -> str:
        """Pull or plug a cable, or break an HCA; return a line for the user. Raises `LabError`."""
        if self.socket is None:
            raise LabError("this log is not of a pair that runs", "start one with `bluebridge up`")
        ports = [port for each in self._functions() for port in each.ports]
        if word == "link" and name in ports and action in ("up", "down"):
            hardware.tell(self.socket, f"link {name} {action}")
            return f"{name}: cable {'plugged in' if action == 'up' else 'pulled'}"
        adapters = [each.name for each in self._functions() if each.kind == "HCA"]
        if word == "fault" and name in adapters:
            hardware.tell(self.socket, f"fault {name}")
            return f"{name}: its HCA has failed; a driver that is bound resets it within 5 s"
        raise UsageError(f"{word} {name} {action}: there is no such button", "reload the page")

    def _functions(self) -> Iterator[Function]:
        for functions in hosts(self.reader.meta["devices"]).values():
            yield from functions


def _state(line: str) -> dict[str, Any] | None:
    """Return the fields of a line of `status`, such as `a/1 working cable in link up`."""
    words = line.split()
    if len(words) < 6:
        return None
    return {
        "port": words[0],
        "failed": words[1] != "working",
        "cable": words[3] == "in",
        "link": words[5] == "up",
    }


def find(folder: Path | None) -> tuple[Path, str, Path | None]:
    """Return a log, its title, and the control socket if a pair writes it, or raise `LabError`."""
    running = [pair for _, pair in registry.pairs() if pair.logs]
    if folder is None:
        if not running:
            raise LabError(
                "nothing runs", "start a pair with `bluebridge up`, or name a log's folder"
            )
        pair = running[-1]
        return Path(pair.logs), _title(pair), pair.control
    real = folder.resolve()
    for pair in running:
        if real in (Path(pair.logs).resolve(), (Path(pair.logs) / "bus").resolve()):
            return folder, _title(pair), pair.control
    parent = real.parent if real.name == "bus" else real
    return folder, f"log {parent.name}", None


def _title(pair: PairRecord) -> str:
    return f"pair {pair.number}: {pair.sides}"


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
