"""The index of a long log's words, by which a search passes by what it need not read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from bluebridge.device.buslog.record import INDEX_EVERY
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.web import book as book_of_a_log
from bluebridge.host_tools.web import word_gatherer, words
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.words import PART, ROW, Words
from tests.models.analysis_log import Sender, posted
from tests.unit.web.web_site import served

EVENTS_OF_A_POST = 6
PARTS = 3
SMALL = 2048
"""The events of a part here; pages have more."""
NOTE_AT = 2 * SMALL + 300
SECONDS = 300.0


def test_processes_gather_the_words_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_of_a_log, "SPAN", SMALL)
    events = PART + words.AFTER + 2 * INDEX_EVERY
    posted(tmp_path / "log", events // EVENTS_OF_A_POST)
    book = Book(tmp_path / "log")
    book.gather_words()
    end = time.monotonic() + SECONDS
    while book.page(0, 1, Query(text="nowhere"), 0).first < PART:
        assert time.monotonic() < end, "the words of the log were not gathered"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def small_parts() -> Iterator[None]:
    """Parts, what is read behind them, and the span of a search, shorter than those of pages."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (words, word_gatherer):
            patch.setattr(module, "PART", SMALL)
        for module in (words, book_of_a_log):
            patch.setattr(module, "AFTER", 256)
        patch.setattr(book_of_a_log, "SPAN", SMALL)
        yield


def _gathered(log: Path) -> Path:
    file = words.file_of(log)
    assert words.begun(file)
    for place in range(words.WORKERS):
        word_gatherer.main(log, file, place)
    return log


@pytest.fixture(scope="module")
def log(small_parts: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Posts; one that is announced goes on from the first part into the second; a note later."""
    folder = tmp_path_factory.mktemp("words") / "log"
    sender = Sender(folder)
    for place in range((PARTS * SMALL + 3000) // EVENTS_OF_A_POST):
        sender.post(announced=place == SMALL // EVENTS_OF_A_POST)
        if place == NOTE_AT // EVENTS_OF_A_POST:
            sender.tell(Fact.MARK, text="Only HERE")
    sender.log.close()
    return _gathered(folder)


@pytest.fixture(scope="module")
def book(log: Path) -> Book:
    """The log with its words."""
    found = Book(log)
    found.gather_words()
    return found


def _numbers(book: Book, query: Query) -> list[int]:
    found: list[int] = []
    first, done = 0, False
    while not done:
        page = book.page(first, 1000, query)
        found += [each.number for each in page.found]
        first, done = page.end, page.done
    return found


@pytest.mark.parametrize(
    ("query", "begins"),
    [
        (Query(text="only here"), NOTE_AT),
        (Query(kind="note"), NOTE_AT),
        (Query(text="msi-X vector 1"), SMALL - 1),  # a step in the second part
        (Query(text="RDMA_WRITE 8 bytes"), 0),
        (Query(text="RDMA_WRITE", kind="note"), NOTE_AT),
        (Query(text="on"), 0),  # the index has no words of two letters
    ],
)
def test_a_search_begins_at_the_row_that_has_its_words(
    book: Book, query: Query, begins: int
) -> None:
    assert book.page(0, 1, query, 0).first == begins // ROW * ROW


def test_a_search_with_words_finds_what_one_without_finds(book: Book, log: Path) -> None:
    query = Query(text="msi-x vector 1")
    without = [each.number for each in Book(log).page(0, 1 << 30, query, SECONDS).found]
    assert _numbers(book, query) == without == [SMALL - SMALL % EVENTS_OF_A_POST]


def test_a_search_backwards_passes_by_parts_too(book: Book) -> None:
    page = book.before(NOTE_AT - 200, 10, Query(text="nowhere"), 0)
    assert (page.first, page.found) == (0, [])
    (note,) = book.before(PARTS * SMALL, 10, Query(text="only here"), SECONDS).found
    assert note.title == "mark: Only HERE"


def test_a_page_of_a_finished_log_gathers_its_words(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is written is left alone until somebody searches it."""
    asked: list[Path] = []
    monkeypatch.setattr(Book, "gather_words", lambda book: asked.append(book.folder))
    for control, count in ((None, 1), (log / "no-socket", 0)):
        asked.clear()
        with served(log, control) as address, urlopen(address + "activity/0") as answer:
            answer.read()
        assert len(asked) == count


def _first(log: Path, text: str) -> int:
    """Where a search begins in a book whose processes have not gathered anything yet."""
    return Book(log).page(0, 1, Query(text=text), 0).first


@pytest.fixture
def kept(small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of small parts whose words are kept; those that are not kept are not gathered."""
    monkeypatch.setattr(Words, "_run", lambda words, place: None)
    events = PARTS * SMALL + words.AFTER + 2 * INDEX_EVERY
    posted(tmp_path / "log", events // EVENTS_OF_A_POST)
    return _gathered(tmp_path / "log")


def test_words_that_are_kept_beside_the_log_serve_the_next_page(kept: Path) -> None:
    assert _first(kept, "nowhere") >= PARTS * SMALL
    assert _first(kept, "rdma_write") == 0


@pytest.mark.parametrize("what", ["cut off", "other bytes", "of another log", "not there"])
def test_words_that_are_damaged_or_of_another_log_are_not_used(kept: Path, what: str) -> None:
    path = words.file_of(kept)
    data = path.read_bytes()
    if what == "not there":
        path.unlink()
    elif what == "of another log":
        meta = json.loads((kept / "meta.json").read_text())
        (kept / "meta.json").write_text(json.dumps(meta | {"started_ns": 1}))
    else:
        path.write_bytes(data[:-9] if what == "cut off" else data[:4096] + bytes(len(data) - 4096))
    assert _first(kept, "nowhere") == 0
    assert [each.name for each in kept.glob("words*")] == [words.file_of(kept).name]


def test_a_view_in_place_of_the_index_delays_no_search(kept: Path) -> None:
    """As a log from elsewhere may have it."""
    endless = "WITH RECURSIVE n(rowid) AS (SELECT 1 UNION ALL SELECT rowid + 1 FROM n)"
    with words.opened(words.file_of(kept), "rw") as index:
        index.execute("DROP TABLE words")
        index.execute(f"CREATE VIEW words AS {endless} SELECT rowid, 'words' AS words FROM n")
    begun = time.monotonic()
    assert _first(kept, "nowhere") == 0
    assert time.monotonic() - begun < SECONDS / 10


def test_words_of_a_log_that_cannot_be_written_to_are_gathered_all_the_same(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.file_of(kept).unlink()
    words.file_of(kept).mkdir()  # where the file would be
    ended = threading.Semaphore(0)

    def run(gathered: Words, place: int) -> None:
        word_gatherer.main(kept, gathered._file, place)
        ended.release()

    monkeypatch.setattr(Words, "_run", run)
    book = Book(kept)
    book.gather_words()
    assert all(ended.acquire(timeout=SECONDS) for _ in range(words.WORKERS))
    assert book.page(0, 1, Query(text="nowhere"), 0).first >= PARTS * SMALL
