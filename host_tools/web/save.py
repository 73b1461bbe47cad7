"""A page in one file: its style, its program and some activities inside, nothing else to load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.activity import ActivityKind
from bluebridge.host_tools.web.app import STATIC
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.lab import Lab
from bluebridge.host_tools.web.timeline import length, moments, timeline

SCRIPTS = (
    "source.js", "drawing.js", "queues.js", "player.js", "list.js", "lab.js", "time.js", "main.js",
)  # fmt: skip
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def page(
    lab: Lab, book: Book, first: int, limit: int, kind: str = "", *, at_end: bool = False
) -> Iterator[bytes]:
    """Yield the page in pieces, with up to `limit` activities of a kind from event `first` on.

    With `at_end` it has the last of them, and opens at the last that failed, else at the last work
    request, else at the last of all.
    """
    text = (STATIC / "index.html").read_text()
    style = (STATIC / "page.css").read_text()
    head, _, tail = text.partition("<!-- style -->")
    _, _, tail = tail.partition("<!-- /style -->")
    body, _, _ = tail.partition("<!-- scripts -->")
    yield head.encode()
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'.encode()
    yield f"<style>\n{style}</style>{body}<script>\nconst SAVED = ".encode()
    yield from _data(lab, book, first, limit, kind, at_end=at_end)
    yield b";\n"
    for name in SCRIPTS:
        yield (STATIC / name).read_bytes()
    yield b"</script>\n</body>\n</html>\n"


def _data(
    lab: Lab, book: Book, first: int, limit: int, kind: str, *, at_end: bool
) -> Iterator[bytes]:
    found, activities = book.whole(first, limit, Query(kind), at_end=at_end)
    reader = LogReader(book.folder)
    log = length(reader)  # behind the activities: the log may still grow
    log["timeline"] = timeline(reader, log["begin"], log["seconds"])
    log["moments"] = moments(reader)
    what = "activity" if len(activities) == 1 else "activities"
    if kind:
        what += f" of the kind {kind}"
    said = f"{len(activities)} {what}, of events {found.first} to {max(found.first, found.end - 1)}"
    said += f" of a log of {max(log['end'], found.end)} events"
    if not found.done or found.first > first:
        said += "; --limit and --event choose others"
    head = lab.description() | {"log": log, "running": False, "saved": said}
    if activities:
        head["open"] = _opened(activities, at_end=at_end)
    yield b'{"lab":' + _json(head) + b',"activities":[\n'
    for each in activities:
        yield _json(each) + b",\n"
    yield b"]}"


def _opened(activities: Sequence[dict[str, Any]], *, at_end: bool) -> int:
    """Return the number of the activity that is shown first."""
    asked = [each for each in activities if each["kind"] == ActivityKind.WORK_REQUEST.value]
    if at_end:
        failed = [each for each in activities if each["failed"]]
        chosen = (failed or asked or activities)[-1]
    else:
        longer = [each for each in activities if each["steps"] > 1]
        chosen = (asked or longer or activities)[0]
    number: int = chosen["number"]
    return number


def _json(value: object) -> bytes:
    """Return JSON without `<`, so that no end tag can end the script around it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").encode()
