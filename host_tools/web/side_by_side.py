"""Two logs side by side: activities in pairs by what was asked, and where they differ first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import bottle

from bluebridge.host_tools.analyzer.comparison import Comparable
from bluebridge.host_tools.web.app import Site, answering, static_file
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.lab import Lab, Live

MOST = 3000
"""The most activities of each log that are compared."""
_SECONDS = 20.0
"""The seconds that reading a log may take; what was not read by then is not compared."""
_OBJECT = re.compile(r"(QP |_(?:QP|CQ|SRQ|EQ|MPT|MTT)\b.*in_mod=|(?:qpn|cqn)=)0x[0-9a-f]+")
"""Numbers of objects, which each run draws or counts anew."""
_NUMBER = re.compile(r"0x[0-9a-f]+")

Row = dict[str, Any]


class SideBySide:
    """The site of two logs: a page that compares them, and the page of each below it."""

    def __init__(self, one: Lab, other: Lab) -> None:
        self._labs = (one, other)
        self._books = [Book(lab.reader.folder) for lab in self._labs]

    def application(self) -> bottle.Bottle:
        """Return the WSGI application."""
        app = bottle.Bottle()
        app.route("/", "GET", lambda: static_file("compare.html"))
        app.route("/static/<name>", "GET", static_file)
        app.route("/compare", "GET", answering(self.compare))
        for place, lab, book in zip(("one", "other"), self._labs, self._books, strict=True):
            app.mount(f"/{place}/", Site(lab, book, Live(lab)).application())
        return app

    def compare(self) -> dict[str, Any]:
        """Answer with the titles of both logs and the pairs of their activities."""
        pages = [book.page(0, MOST, Query(routine=False), _SECONDS) for book in self._books]
        lists = [page.as_json()["rows"] for page in pages]
        cut = [not page.done for page in pages]
        titles = [lab.description()["title"] for lab in self._labs]
        return {"titles": titles, "cut": cut, "pairs": paired(*lists)}


def paired(one: Sequence[Row], other: Sequence[Row]) -> list[Row]:
    """Return pairs of rows of each function, in order; a side without the activity is None."""
    found: list[tuple[float, Row]] = []
    for device in dict.fromkeys(row["device"] for row in (*one, *other)):
        at = -1.0
        lists = ([row for row in rows if row["device"] == device] for rows in (one, other))
        for pair in _of_device(*lists):
            at = pair["one"]["at"] if pair["one"] is not None else at
            found.append((at, pair))
    return [pair for _, pair in sorted(found, key=lambda each: each[0])]


def _of_device(one: Sequence[Row], other: Sequence[Row]) -> Iterator[Row]:
    texts = [_comparable(rows) for rows in (one, other)]
    left_asked, right_asked = ([_NUMBER.sub("", text) for text in each] for each in texts)
    matcher = SequenceMatcher(None, left_asked, right_asked, autojunk=False)
    for tag, begin, end, start, stop in matcher.get_opcodes():
        for place, there in zip_longest(range(begin, end), range(start, stop)):
            left = None if place is None else one[place]
            right = None if there is None else other[there]
            same = (
                tag == "equal"
                and texts[0][place] == texts[1][there]
                and one[place]["status"] == other[there]["status"]
            )
            yield {"one": left, "other": right, "same": same}


def _comparable(rows: Sequence[Row]) -> list[str]:
    normal = Comparable()
    titles = (_OBJECT.sub(r"\1", row["title"]) for row in rows)
    return [f"{row['kind']} {normal.text(each)}" for row, each in zip(rows, titles, strict=True)]
