"""The bus log as a test sees it: decoded records, and waiting for one to come."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.buslog.decode import decode
from bluebridge.device.buslog.event_lines import HEADER, KINDS, table_line
from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.processes import alarms
from bluebridge.host_tools.processes.alarms import Alarm

_POLL_SECONDS = 0.02  # the device server writes its log out every 50 ms
_SHOWN = 20

Predicate = Callable[["Record"], bool]


@dataclass(frozen=True, slots=True)
class Record:
    """One event of the bus log with what it means; `str` is its line of the table."""

    event: Event

    @property
    def guest(self) -> str:
        """Name of the guest whose device it was."""
        return self.event.device

    @property
    def time(self) -> float:
        """Seconds since the log began."""
        return self.event.time

    @property
    def kind(self) -> Kind:
        """What kind of transaction."""
        return self.event.kind

    @property
    def what(self) -> What:
        """What a DMA transfer was for; `obj` is the number of that queue or region."""
        return self.event.what

    @property
    def obj(self) -> int:
        """Number of the queue or region of a DMA transfer."""
        return self.event.obj

    @property
    def bar(self) -> int:
        """BAR of an MMIO access."""
        return self.event.bar

    @property
    def address(self) -> int:
        """Offset in the BAR, guest-physical address, or vector, as the kind has it."""
        return self.event.address

    @property
    def length(self) -> int:
        """Bytes on the bus."""
        return self.event.length

    @property
    def data(self) -> bytes:
        """The bytes, or their beginning: the log captures 64 unless told otherwise."""
        return self.event.data

    @property
    def decoded(self) -> str:
        """In words: `UAR[128].send qpn=0x49`."""
        return decode(self.event)

    def __str__(self) -> str:
        return table_line(self.event)


class BusLogTimeout(LabError, AssertionError):
    """The record that was waited for did not come; the transcript is the end of the log."""


class BusLog:
    """The records of a pair's bus log from `begin` (seconds since the log began) on.

    Iterate over it for what has been recorded up to now. The device server writes the log out
    every 50 ms, so a check right after an action needs `wait_for`.
    """

    def __init__(self, folder: Path, begin: float = 0.0, alarms: Sequence[Alarm] = ()) -> None:
        """`alarms` end a wait early. Raises `LabError` when there is no log in `folder`."""
        self._begin = begin
        self._alarms = alarms
        with _log_errors():
            self._reader = LogReader(folder)

    def __iter__(self) -> Iterator[Record]:
        with _log_errors():
            for event in self._reader.since(self._begin):
                if event.time >= self._begin:
                    yield Record(event)

    def records(
        self,
        kind: str | Kind | None = None,
        guest: str | None = None,
        containing: str = "",
        bar: int | None = None,
    ) -> list[Record]:
        """What has been recorded up to now and passes all filters.

        `kind` is a `Kind`, its name (`"mmio_write"`), or one of the groups `mmio`, `dma`, `irq`,
        `command`, `config`, `reset`, `note`, `link`, `control`, `fault`; `containing` must occur in
        the decoded text.
        """
        wanted = _filter(kind, guest, containing, bar)
        return [record for record in self if wanted(record)]

    def wait_for(
        self,
        predicate: Predicate | None = None,
        timeout: float = 10.0,
        *,
        kind: str | Kind | None = None,
        guest: str | None = None,
        containing: str = "",
        bar: int | None = None,
    ) -> Record:
        """The first record that passes `predicate` and all filters, from the beginning on.

        Waits up to `timeout` seconds for it. Raises `BusLogTimeout`, or what is wrong with the
        pair when it cannot come any more.
        """
        wanted = _filter(kind, guest, containing, bar)
        deadline = time.monotonic() + timeout
        last: deque[Record] = deque(maxlen=_SHOWN)
        with _log_errors():
            follower = Follower(self._reader)
        while True:
            late = time.monotonic() >= deadline  # what comes up to now is still looked at
            trouble = alarms.first(self._alarms)
            with _log_errors():
                for event in follower.new():
                    if event.time < self._begin:
                        continue
                    record = Record(event)
                    if wanted(record) and (predicate is None or predicate(record)):
                        return record
                    last.append(record)
            if trouble is not None:
                raise trouble
            if late:
                raise self._timeout(timeout, list(last))
            time.sleep(_POLL_SECONDS)

    def skip(self) -> None:
        """Forget what has been recorded up to now."""
        self._begin = self.now()

    def now(self) -> float:
        """The present as the log counts it: seconds since it began."""
        return since_beginning(self._reader)

    def _timeout(self, timeout: float, last: list[Record]) -> BusLogTimeout:
        lines = [HEADER, *map(str, last)] if last else ["nothing was recorded"]
        return BusLogTimeout(
            f"no such record on the bus within {timeout:g} s",
            f"the log is in {self._reader.folder}",
            "\n".join(lines),
        )


def since_beginning(reader: LogReader) -> float:
    """Seconds since a log began; its writer uses the same clock."""
    return time.monotonic() - int(reader.meta["started_monotonic_ns"]) / 1e9


def _filter(
    kind: str | Kind | None, guest: str | None, containing: str, bar: int | None
) -> Predicate:
    kinds = _kinds(kind)

    def accepts(record: Record) -> bool:
        if kinds is not None and record.kind not in kinds:
            return False
        if guest is not None and record.guest != guest:
            return False
        if bar is not None and (record.kind not in KINDS["mmio"] or record.bar != bar):
            return False
        return not containing or containing in record.decoded

    return accepts


def _kinds(kind: str | Kind | None) -> frozenset[Kind] | None:
    if kind is None:
        return None
    if isinstance(kind, Kind):
        return frozenset((kind,))
    if kind in KINDS:
        return KINDS[kind]
    single = {each.name.lower(): each for each in Kind}
    if kind not in single:
        raise UsageError(f"the bus log has no kind {kind!r}", f"use one of {', '.join(KINDS)}")
    return frozenset((single[kind],))


@contextlib.contextmanager
def _log_errors() -> Iterator[None]:
    """Failures of the reader as the lab's own kind."""
    try:
        yield
    except LogError as error:
        raise LabError(f"the bus log cannot be read: {error}") from error
