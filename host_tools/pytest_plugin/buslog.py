"""The bus log for tests: decoded records, work requests, and waiting for a record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ibverbs import operation
from bluebridge.device.layout.ntrdma.work import WorkStatus
from bluebridge.host_tools import processes
from bluebridge.host_tools.analyzer import fields
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.analyzer.analysis import Transfer
from bluebridge.host_tools.analyzer.analysis.assembly import assembled
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS as NTRDMA_KINDS
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.processes import Alarm
from bluebridge.host_tools.pytest_plugin.wanted import Misses, Predicate, Record, Wanted

_POLL_SECONDS = 0.02  # the device server writes its log out every 50 ms
_LOOKED_AT = 100_000
"""The number of events at the end of the log among which the nearest misses are looked for."""

Mark = Callable[[str], object]


class BusLogTimeout(LabError, AssertionError):
    """The awaited record did not come in time; the transcript has the records that came nearest."""


class BusLog:
    """The records of a pair's bus log from `begin` (seconds since the log began) on.

    Iteration yields the records up to now. The device server writes the log out every 50 ms, so a
    check right after an action needs `wait_for`.
    """

    def __init__(
        self,
        folder: Path,
        begin: float = 0.0,
        alarms: Sequence[Alarm] = (),
        mark: Mark | None = None,
    ) -> None:
        """`alarms` end a wait early; `mark` has the server put a mark into the log.

        Raises `LabError` when there is no log in `folder`.
        """
        self._begin = begin
        self._alarms = alarms
        self._mark = mark
        with _log_errors():
            self._reader = LogReader(folder)

    @property
    def folder(self) -> Path:
        """The folder of the log, for `bluebridge log`."""
        return self._reader.folder

    def __iter__(self) -> Iterator[Record]:
        with _log_errors():
            for event in self._events():
                yield Record(event)

    def _events(self) -> Iterator[Event]:
        return self._reader.events(Filter(since=self._begin))

    def records(
        self,
        kind: str | Kind | None = None,
        guest: str | None = None,
        containing: str = "",
        bar: int | None = None,
        matching: str = "",
    ) -> list[Record]:
        """Return the records up to now that pass all filters.

        `kind` is a `Kind`, its name (`"mmio_write"`), or one of the groups `mmio`, `dma`, `irq`,
        `command`, `config`, `reset`, `note`, `link`, `control`, `fault`; `containing` must occur in
        the decoded text; `matching` is a condition as `watch --until` takes it: `"syndrome!=0"`.
        """
        wanted = Wanted.of(None, kind, guest, containing, bar, matching)
        return [record for record in self if wanted.accepts(record)]

    def wait_for(
        self,
        predicate: Predicate | None = None,
        timeout: float = 10.0,
        *,
        kind: str | Kind | None = None,
        guest: str | None = None,
        containing: str = "",
        bar: int | None = None,
        matching: str = "",
    ) -> Record:
        """Return the first record that passes `predicate` and all filters, from the beginning on.

        Waits up to `timeout` seconds for it. Raises `BusLogTimeout`, or the error of a guest or the
        server when it cannot come any more.
        """
        wanted = Wanted.of(predicate, kind, guest, containing, bar, matching)
        deadline = time.monotonic() + timeout
        with _log_errors():
            follower = Follower(self._reader)
        while True:
            late = time.monotonic() >= deadline  # what comes up to now is still looked at
            trouble = processes.first(self._alarms)
            with _log_errors():
                for event in follower.new():
                    if event.time >= self._begin and wanted.accepts(record := Record(event)):
                        return record
            if trouble is not None:
                raise trouble
            if late:
                raise self._timeout(timeout, wanted)
            time.sleep(_POLL_SECONDS)

    def transfers(self, guest: str | None = None) -> list[Transfer]:
        """Return the work requests up to now, of HCAs and of NTRDMA, with the transactions of each.

        Those in progress are among them: their `status` is empty. `guest` is the sender's.
        """
        with _log_errors():
            before: Iterator[Event] = iter(())
            if self._begin:
                until = self._begin
                before = LogReader(self.folder).events(Filter(NTRDMA_KINDS, until=until))
            found = assembled(self._events(), self._reader.meta["devices"], before)
            return [each for each in found if guest in (None, _guest(each.device))]

    def work_requests(
        self,
        guest: str | None = None,
        opcode: str | None = None,
        qpn: int | None = None,
        status: str | None = None,
    ) -> list[Transfer]:
        """Return the work requests of `transfers` that pass all filters.

        Filters are such as `opcode="RDMA_WRITE"` and `status="OK"`; names are those of verbs, with
        their prefix (`IBV_WR_RDMA_WRITE`) or without. Raises `UsageError` for an unknown one.
        """
        asked, ending = opcode and operation(opcode), status and fields.status(status)
        _check("opcode", opcode, asked, fields.opcodes())
        _check("status", status, ending, fields.statuses() | {*WorkStatus.__members__})
        return [
            each
            for each in self.transfers(guest)
            if asked in (None, operation(each.opcode))
            and ending in (None, each.status)
            and qpn in (None, each.qpn)
        ]

    def activities(
        self, kind: ActivityKind | str | None = None, guest: str | None = None
    ) -> list[Activity]:
        """Return the activities up to now: work requests, firmware commands, interrupts, stores...

        `kind` is an `ActivityKind` or its name (`"command"`). Raises `UsageError` for another.
        """
        chosen = _activity_kind(kind)
        with _log_errors():
            return [
                each
                for each in activities(self._reader, Filter(since=self._begin))
                if chosen in (None, each.kind) and guest in (None, _guest(each.device))
            ]

    def mark(self, text: str) -> None:
        """Put a mark into the log, at which `bluebridge log --from-mark TEXT` begins.

        Raises `UsageError` when the log's pair does not run.
        """
        if self._mark is None:
            raise UsageError("this log is not of a pair that runs", "leave out the mark")
        self._mark(text)

    def skip(self) -> None:
        """Leave out the records up to now in everything that is asked later."""
        self._begin = self.now()

    def now(self) -> float:
        """Return the present in seconds since the log began."""
        return since_beginning(self._reader)

    def _timeout(self, timeout: float, wanted: Wanted) -> BusLogTimeout:
        misses = Misses(wanted)
        with _log_errors():
            first = max(0, about_last(self.folder) - _LOOKED_AT)
            for event in self._reader.events(Filter(since=self._begin, first=first)):
                misses.add(Record(event))
        return BusLogTimeout(
            f"no record with {wanted} on the bus within {timeout:g} s",
            f"the log is in {self._reader.folder}",
            "\n".join(misses.lines()),
        )


def _check(what: str, given: str | None, found: str | None, known: Iterable[str]) -> None:
    if given and found is not None and found not in known:
        raise UsageError(f"there is no {what} {given}", f"known: {', '.join(sorted(known))}")


def since_beginning(reader: LogReader) -> float:
    """Return the seconds since a log began; its writer uses the same clock."""
    return time.monotonic() - int(reader.meta["started_monotonic_ns"]) / 1e9


def _guest(device: str) -> str:
    """The guest of a device: `a` of `a/2`, `a.1` and `a.ntb`."""
    return device.partition("/")[0].partition(".")[0]


def _activity_kind(kind: ActivityKind | str | None) -> ActivityKind | None:
    if not isinstance(kind, str):
        return kind
    for each in ActivityKind:
        if kind in (each.value, each.name.lower()):
            return each
    names = ", ".join(each.name.lower() for each in ActivityKind)
    raise UsageError(f"there is no kind of activity {kind!r}", f"use one of {names}")


@contextlib.contextmanager
def _log_errors() -> Iterator[None]:
    """Turn each `LogError` that is raised within the `with` block into a `LabError`."""
    try:
        yield
    except LogError as error:
        raise LabError(f"the bus log cannot be read: {error}") from error
