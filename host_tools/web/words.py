"""An index of a log's words, by which a search passes by what does not have its text.

A file beside the log, whose name tells the log and the code it was made by, has a full text index
of trigrams (SQLite's FTS5): a row for each `ROW` events, with all that is said of the activities
which begin there. Two processes fill it part by part.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import INDEX_EVERY
from bluebridge.images.cache import PACKAGE

ROW = 1 << 10
"""The number of events of a row; a multiple of it is the first of them."""
PART = 1 << 15
"""The number of events that are gathered at once, whose first is a multiple of it."""
AFTER = 4096
"""The number of events after a part or page in which its activities may end."""
WORKERS = 2
_SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(said, content='', detail=none, tokenize='trigram');
CREATE TABLE parts (number INTEGER PRIMARY KEY);
"""
_LAST = 1 << 52
"""A row behind all others."""
_PAGE = 4096
_MOST_PAGES = 1 << 16
"""The most pages of the file; a search reads the log itself beyond what they hold."""
_MOST_STEPS = 10_000_000
"""Of one statement: a file that came with a log from elsewhere may have another schema."""
_CODE = ("device/buslog", "device/layout", "host_tools/analyzer", "host_tools/web")
"""The folders whose code decides which words a log has."""


class Words:
    """The words of a log, as far as they are gathered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder
        self._started = False
        self._lock = threading.Lock()

    def gather(self) -> None:
        """Begin once to gather what the file beside the log lacks, or all into a temporary one.

        Raises `LogError` for a folder without a log.
        """
        with self._lock:
            if self._started:
                return
            self._started = True
            self._file = file_of(self._folder)
            if not begun(self._file):
                self._elsewhere = tempfile.TemporaryDirectory()  # removed with this object
                self._file = Path(self._elsewhere.name) / self._file.name
                begun(self._file)
        for place in range(WORKERS):
            threading.Thread(target=self._run, args=(place,), daemon=True).start()

    def _run(self, place: int) -> None:
        """Have a process gather, which ends when nobody reads what it prints any more."""
        module = "bluebridge.host_tools.web.word_gatherer"
        words = [str(self._folder), str(self._file), str(place)]
        subprocess.run(
            [sys.executable, "-m", module, *words], stdin=subprocess.DEVNULL, capture_output=True
        )

    def after(self, first: int, texts: Sequence[str]) -> int:
        """Return the first event from `first` on where an activity may begin that has `texts`."""
        row = f"ifnull(min(rowid), {_LAST}) FROM words WHERE rowid >= {first // ROW}"
        found = self._next(row, texts, count(first // PART))
        return first if found is None else max(first, min(found[0] * ROW, found[1] * PART))

    def before(self, end: int, texts: Sequence[str]) -> int:
        """Return the event up to `end` behind the last place where such an activity may begin."""
        row = f"ifnull(max(rowid), -1) FROM words WHERE rowid < {-(-end // ROW)}"
        found = self._next(row, texts, range((end - 1) // PART, -1, -1))
        return end if found is None else min(end, max(found[0] * ROW + ROW, found[1] * PART + PART))

    def _next(self, row: str, texts: Sequence[str], parts: Iterable[int]) -> tuple[int, int] | None:
        """Return the `row` that has the trigrams of all texts, and the first part not gathered.

        None where no text is long enough, or the file is of no use.
        """
        wanted = " AND ".join(gram for text in texts for gram in _trigrams(text))
        with suppress(sqlite3.Error), opened(self._file, "ro") as index:
            if wanted:
                ((number,),) = index.execute(f"SELECT {row} AND words MATCH ?", (wanted,))
                gathered = {part for (part,) in index.execute("SELECT number FROM parts")}
                return number, next((each for each in parts if each not in gathered), -1)
        return None


def _trigrams(text: str) -> Iterator[str]:
    for at in range(len(text) - 2):
        gram = clean(text[at : at + 3]).replace('"', '""')
        yield f'"{gram}"'


def clean(text: str) -> str:
    """Return a text as the index has it: without halves of characters."""
    return text.encode(errors="replace").decode()


@contextmanager
def opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open an index, `ro`, `rw` or `rwc`, each statement by itself. Raises `sqlite3.Error`."""
    place = f"{file.absolute().as_uri()}?mode={mode}"
    index = sqlite3.connect(place, timeout=60, isolation_level=None, uri=True)
    try:
        index.set_progress_handler(lambda: 1, _MOST_STEPS)
        index.execute(f"PRAGMA page_size = {_PAGE}")
        index.execute(f"PRAGMA max_page_count = {_MOST_PAGES}")
        yield index
    finally:
        index.close()


def begun(file: Path) -> bool:
    """Whether there is an index: one that is damaged, or another log's or code's, is replaced."""
    with suppress(sqlite3.Error), opened(file, "ro") as index:
        sound = index.execute("PRAGMA quick_check").fetchone() == ("ok",)
        if sound and file.stat().st_size % _PAGE == 0:
            return True
    with suppress(sqlite3.Error, OSError):
        for old in file.parent.glob("words-*"):
            old.unlink()
        with opened(file, "rwc") as index:
            index.executescript(_SCHEMA)
            return True
    return False


def file_of(folder: Path) -> Path:
    """Return the file of a log: other logs and other revisions of the code have other names."""
    meta = LogReader(folder).meta
    names = ("version", "started_ns", "started_monotonic_ns")  # which another log has otherwise
    log = _digest(json.dumps([meta.get(name) for name in names]).encode())
    return folder / f"words-{log}-{_code()}.db"


@cache
def _code() -> str:
    paths = sorted(path for name in _CODE for path in (PACKAGE / name).rglob("*.py"))
    return _digest(b"\0".join(path.read_bytes() for path in paths))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def parts(folder: Path) -> range:
    """Return the numbers of the parts that nothing changes any more, as it may the last."""
    end = about_last(folder) - INDEX_EVERY - AFTER
    return range(max(0, end // PART))
