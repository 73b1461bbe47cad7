"""`python -m` of this module with DIR N: the words of every second part of a log, from the end.

Each part is a line of JSON, `[part, bytes]`, and so many bytes; it is kept beside the log as well,
and left out if it was. The last part comes first: a search that reads from the beginning meets what
was gathered the sooner.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.web.book import Gathered, read, said, words_of
from bluebridge.host_tools.web.words import PART, WORKERS, KeptWords, pack, parts

_NICE = 9  # The niceness of the process above that of the server, so that the page comes first


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
    """Write the words of the parts that are not kept yet to standard output."""
    out = sys.stdout.buffer
    kept = KeptWords(folder)
    for part in parts(folder)[::-1][place::WORKERS]:
        if kept.part(part) is not None:
            continue
        words = _Words(part * PART)
        read(LogReader(folder), words, until=(part + 1) * PART)
        packed = pack(words.words)
        kept.keep(part, packed)
        out.write(json.dumps([part, len(packed)]).encode() + b"\n" + packed)
        out.flush()


if __name__ == "__main__":
    gc.disable()  # activities have no cycles, and what is kept is a set of words
    os.nice(_NICE)
    main(Path(sys.argv[1]), int(sys.argv[2]))
