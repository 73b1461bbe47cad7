"""`python -m` of this module with DIR N: the words of every second part of a log, from part N on.

Each part is a line of JSON, `[part, bytes]`, and so many bytes. The last part of a log is left out,
since activities that begin in it may go on.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import INDEX_EVERY
from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.web.book import AFTER, Gathered, read, said, words_of
from bluebridge.host_tools.web.words import PART, WORKERS, pack

_NICE = 9
"""The niceness of the process above that of the server, so that the page comes first."""


class _Words(Gathered):
    """The words of all activities and of all events."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.words: set[str] = set()

    def look(self, event: Event) -> None:
        """Take the words and the address of an event."""
        self.words.update(said(event))

    def add(self, activities: list[Activity]) -> None:
        """Take the words of activities, and keep none of them."""
        for each in activities:
            self.words.update(word.lower() for word in words_of(each))


def main(folder: Path, place: int) -> None:
    """Write the words of the parts `place`, `place + WORKERS` and so on to standard output."""
    gc.disable()  # activities have no cycles, and what is kept is a set of words
    out = sys.stdout.buffer
    os.nice(_NICE)
    end = about_last(folder) - INDEX_EVERY
    for part in range(place, end // PART, WORKERS):
        first, until = part * PART, (part + 1) * PART
        if until + AFTER > end:
            return
        words = _Words(first)
        read(LogReader(folder), words, until=until)
        packed = pack(words.words)
        out.write(json.dumps([part, len(packed)]).encode() + b"\n" + packed)
        out.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
