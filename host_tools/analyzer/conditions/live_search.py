"""Searches a log for the events that fulfil a condition, while the log is written."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.host_tools.analyzer.conditions.condition import Condition
from bluebridge.host_tools.analyzer.devices.registry import beyond_adapters
from bluebridge.host_tools.analyzer.ntrdma.decoder import Decoder
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS
from bluebridge.host_tools.analyzer.rtrs import decoder as rtrs


class LiveWords:
    """Describes the events of a log that is being written, in order, as `log --decode` does.

    `in_order` says that it must see every event, since stores of NTRDMA are known only from the
    stores before them.
    """

    def __init__(self, reader: LogReader, *, at_end: bool) -> None:
        self._describe = rtrs.decoder_of_live(reader)
        self.in_order = beyond_adapters(reader.meta["devices"])
        before = LogReader(reader.folder).events(Filter(KINDS)) if at_end else iter(())
        self._ntrdma = Decoder(before) if self.in_order else None
        self._last: tuple[int, str] = (-1, "")

    def __call__(self, event: Event) -> str:
        """Return the event in words; a repeated call for the same event returns the same words."""
        if self._last[0] != event.number:
            text = self._describe(event)
            more = "" if self._ntrdma is None else self._ntrdma.more(event)
            self._last = event.number, f"{text} NTRDMA {more}" if more else text
        return self._last[1]


class LiveSearch:
    """The matching events of a log, from its beginning or, with `at_end`, from now on.

    Raises `LogError` on damaged segments, as `new` does.
    """

    def __init__(self, reader: LogReader, condition: Condition, *, at_end: bool = False) -> None:
        self._follower = Follower(reader, at_end=at_end)
        self._condition = condition
        self.words = LiveWords(reader, at_end=at_end)

    @property
    def skipped(self) -> int:
        """Number of events that the log's limit deleted before the search reached them."""
        return self._follower.skipped

    def new(self) -> Iterator[Event]:
        """Yield the events recorded since the last call that fulfil the condition."""
        for event in self._follower.new():
            if self.words.in_order:
                self.words(event)
            if self._condition.matches(event, self.words):
                yield event
