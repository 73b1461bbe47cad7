"""Marks: notes that a person or a test puts into the log, to find a moment again."""

from __future__ import annotations

from typing import Final

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import MARKS
from bluebridge.printable import printable

MAX_TEXT: Final = 1000
"""Characters of a mark, and of the reason for which a log is stopped, at most."""
_SHOWN: Final = 10
"""Marks that an error message lists at most; these are the last ones."""
_NOTES: Final = Filter(frozenset((Kind.NOTE,)))


def marked(event: Event) -> str | None:
    """Return the text of the mark that an event is, None for any other event."""
    return event.values["text"] if event.fact in MARKS else None


def find_mark(reader: LogReader, text: str, after: int = -1) -> Event:
    """Return the last mark that contains `text`.

    With `after`, it is the first one behind that event number. A mark that is exactly `text` is
    preferred to those that only contain it. Raises `LogError`, with the marks that there are, when
    none matches.
    """
    text = printable(text)
    exact: Event | None = None
    found: Event | None = None
    others: list[str] = []
    for event in LogReader(reader.folder).events(_NOTES):
        name = marked(event)
        if name is None or event.number <= after:
            continue
        others.append(name)
        if name == text:
            exact = event
            if after >= 0:
                break
        elif text in name and (found is None or after < 0):
            found = event
    found = exact or found
    if found is None:
        names = ", ".join(map(repr, dict.fromkeys(others[-_SHOWN:]))) or "none"
        raise LogError(f"no mark in the log has {text!r}; its marks are: {names}")
    return found
