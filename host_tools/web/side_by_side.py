"""Two logs side by side: activities in pairs by what was asked, and where they differ first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple

import bottle

from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.analyzer.comparison import CHOSEN, Comparable
from bluebridge.host_tools.web.app import Site, answering, static_file
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.lab import Lab, Live
from bluebridge.host_tools.web.rows import row

MOST = 3000
"""The most activities of each log that are compared."""
_SECONDS = 20.0
"""The seconds that reading a log may take; what was not read by then is not compared."""
_DRAWN = frozenset(("QP", "SQ", "RQ", "CQ", "SRQ", "EQ", "MPT", "MTT", "MKEY"))
"""Objects with numbers that each run draws or counts anew."""
_CHOSEN = CHOSEN | {"qpn", "dqpn", "cqn", "eqn", "srqn", "sqn", "rqn"}
"""The names of their numbers in lines."""
_NUMBER = re.compile(r"0x[0-9a-f]+")

Row = dict[str, Any]


class Line(NamedTuple):
    """A row, what was done, and the same with the numbers that do not depend on the run."""

    row: Row
    done: str
    whole: str


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
        lists = [lines(page.found) for page in pages]
        cut = [not page.done for page in pages]
        titles = [lab.description()["title"] for lab in self._labs]
        return {"titles": titles, "cut": cut, "pairs": paired(*lists)}


def lines(found: Sequence[Activity]) -> list[Line]:
    """Return the lines of activities, in order."""
    normal = Comparable(_CHOSEN)
    return [_line(each, normal) for each in found]


def _line(activity: Activity, normal: Comparable) -> Line:
    told, subject = activity.transactions[0].told, activity.subject
    if subject is not None and activity.name:
        done = f"{activity.name} {subject.noun}"
        whole = done if subject.noun in _DRAWN else f"{done} {subject.number:#x}"
    elif told is not None:
        done, whole = told.fact.name, normal.fact(told)
    else:
        whole = normal.text(activity.title)
        done = _NUMBER.sub("", whole)
    kind = activity.kind.value
    return Line(row(activity), f"{kind} {done}", f"{kind} {whole}")


def paired(one: Sequence[Line], other: Sequence[Line]) -> list[Row]:
    """Return pairs of rows of each function, in order; a side without the activity is None."""
    found: list[tuple[float, Row]] = []
    for device in dict.fromkeys(line.row["device"] for line in (*one, *other)):
        at = -1.0
        lists = ([line for line in side if line.row["device"] == device] for side in (one, other))
        for pair in _of_device(*lists):
            at = pair["one"]["at"] if pair["one"] is not None else at
            found.append((at, pair))
    return [pair for _, pair in sorted(found, key=lambda each: each[0])]


def _of_device(one: Sequence[Line], other: Sequence[Line]) -> Iterator[Row]:
    left_done, right_done = ([line.done for line in side] for side in (one, other))
    matcher = SequenceMatcher(None, left_done, right_done, autojunk=False)
    for _, begin, end, start, stop in matcher.get_opcodes():
        for left, right in zip_longest(one[begin:end], other[start:stop]):
            same = (
                left is not None
                and right is not None
                and left.whole == right.whole
                and left.row["status"] == right.row["status"]
            )
            sides = [None if side is None else side.row for side in (left, right)]
            yield {"one": sides[0], "other": sides[1], "same": same}
