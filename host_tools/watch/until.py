"""`bluebridge watch --until`: ends when an event fulfils a condition."""

from __future__ import annotations

import time

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.conditions import Condition
from bluebridge.host_tools.analyzer.conditions.live_search import LiveSearch
from bluebridge.host_tools.analyzer.event_lines import HEADER, table_line

_LOOK_SECONDS = 0.05
"""Between two looks; the device server writes its log out as often."""
BEFORE = 20
"""Events before the one that was found with which the command in the output begins."""


def watch_until(reader: LogReader, condition: Condition, seconds: float | None) -> int:
    """Wait for an event, at most `seconds`; print it. Returns 0, or 1 when none came.

    Raises `LogError` on damaged segments.
    """
    search = LiveSearch(reader, condition, at_end=True)
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        late = end is not None and time.monotonic() >= end  # what is there by now still counts
        for event in search.new():
            print(HEADER)
            print(table_line(event, words=search.words))
            first = max(0, event.number - BEFORE)
            print(f"event {event.number}; what led there:")
            print(f"  {log_command(reader, first)} --limit {event.number - first + 1}", flush=True)
            return 0
        if late:
            print(f"no event with {condition.text} within {seconds:g} s")
            return 1
        time.sleep(_LOOK_SECONDS)


def log_command(reader: LogReader, first: int) -> str:
    """The command that shows the log from an event on."""
    return f"bluebridge log {reader.folder} --decode --event {first}"
