"""`python -m` of this module with DIR FILE N: every second part of a log goes into the index FILE.

The last part comes first: a search that reads from the beginning meets what was gathered the
sooner.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.web.book import Gathered, read, said, words_of
from bluebridge.host_tools.web.words import PART, ROW, WORKERS, clean, opened, parts

_NICE = 9  # The niceness of the process above that of the server, so that the page comes first


class _Words(Gathered):
    """What is said of the activities that begin in a part, by rows."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self._said: dict[int, tuple[str, str]] = {}
        self._rows: defaultdict[int, set[str]] = defaultdict(set)

    def look(self, event: Event) -> None:
        """Take the words and the address of an event."""
        self._said[event.number] = said(event)

    def add(self, activities: list[Activity]) -> None:
        """Take the words of activities and of their steps, and keep none of the activities."""
        for each in activities:
            if self.first <= each.number < self.first + PART:
                words = self._rows[each.number // ROW]
                words.update(word.lower() for word in words_of(each))
                for one in each.transactions:
                    words.update(self._said.get(one.number, ()))

    def rows(self) -> list[tuple[int, str]]:
        """Return the number and the text of each row."""
        return [(row, clean("\n".join(words))) for row, words in self._rows.items()]


def main(folder: Path, file: Path, place: int) -> None:
    """Gather the parts that are not in the index yet; print the number of each when it is."""
    for part in parts(folder)[::-1][place::WORKERS]:
        with opened(file, "rw") as index:
            if index.execute("SELECT * FROM parts WHERE number = ?", (part,)).fetchall():
                continue
            words = _Words(part * PART)
            read(LogReader(folder), words, until=(part + 1) * PART)
            index.execute("PRAGMA synchronous = OFF")
            index.execute("BEGIN IMMEDIATE")
            index.execute("INSERT INTO parts VALUES (?)", (part,))
            index.executemany("INSERT INTO words (rowid, said) VALUES (?, ?)", words.rows())
            index.execute("COMMIT")
            print(part, flush=True)


if __name__ == "__main__":
    gc.disable()  # activities have no cycles, and what is kept is a set of words
    os.nice(_NICE)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
