"""The requests of the page: files, pages of activities, one activity, events as they come, buttons.

Bottle is one file without dependencies, and its WSGI server of the standard library with a thread
for each connection streams to several pages at once.
"""

from __future__ import annotations

import hmac
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.layout import reference
from bluebridge.host_tools.analyzer.event_lines import named_fields
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.lab import Lab, Live, TooManyPages
from bluebridge.host_tools.web.moments import Moments, queue_answer
from bluebridge.host_tools.web.timeline import length, moments, timeline

_CELLS = re.compile(r"(?<!\\)\|")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]

STATIC = Path(__file__).with_name("static")
COUNT = 200
"""The most activities that one answer of `/activities` has."""
_LONGEST_TEXT = 200
_MOST_BODY = 4096

_LATEST = 1e9  # A bound on the seconds that a log may last
_DIGITS = 18  # The most digits that the number of an event may have


@cache
def reference_page(subject: str) -> str | None:
    """Return the page of a subject; None where there is none of this name."""
    text = reference.pages().get(subject)
    if text is None:
        return None
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><title>{html.escape(subject)}: register reference</title>'
        '<link rel="stylesheet" href="../static/page.css"></head><body class="reference"><main>'
        f"<h1>{html.escape(subject)}</h1>\n"
        + "\n".join(_reference_lines(text))
        + "\n</main></body></html>\n"
    )


def _reference_lines(text: str) -> Iterator[str]:
    """Yield the HTML of headings, paragraphs and tables; rows of fields are called TABLE.field."""
    table, names = "", 0
    inside = False
    for line in text.splitlines():
        row = [html.escape(cell.strip().replace("\\|", "|")) for cell in _CELLS.split(line)[1:-1]]
        if inside and not row:
            inside = False
            yield "</table>"
        if line.startswith("#"):
            level, _, title = line.partition(" ")
            table = title.partition(":")[0]
            yield f"<h{len(level)}>{html.escape(title)}</h{len(level)}>"
        elif row and not inside:
            inside, names = True, row.index("name") if "name" in row else 0
            yield "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in row) + "</tr>"
        elif row and not line.startswith("|---"):
            name = html.escape(f"{table}.{row[names]}")
            yield f'<tr id="{name}">' + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
        elif line and not row:
            yield f"<p>{html.escape(line)}</p>"
    if inside:
        yield "</table>"


class Gate:
    """A WSGI application in front of another: `/SECRET/x` is `/x` there, all else is refused."""

    def __init__(self, inner: Application, secret: str, port: int) -> None:
        self._inner = inner
        self._secret = secret.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on, or answer it with 403."""
        secret, slash, rest = environ.get("PATH_INFO", "").removeprefix("/").partition("/")
        if not self._may_enter(environ, secret) or not slash:
            start_response("403 Forbidden", [*HEADERS, ("Content-Type", "text/plain")])
            return [b"The address that `bluebridge web` printed has a secret; this one has not.\n"]
        environ["PATH_INFO"] = f"/{rest}"

        def with_headers(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, *HEADERS], *more)

        return self._inner(environ, with_headers)

    def _may_enter(self, environ: Environ, secret: str) -> bool:
        """Whether a request names us as host, comes from no other page and has the secret."""
        origin = environ.get("HTTP_ORIGIN")
        return (
            environ.get("HTTP_HOST") in self._hosts
            and (origin is None or origin.removeprefix("http://") in self._hosts)
            and hmac.compare_digest(secret.encode(errors="replace"), self._secret)
        )


def static_file(name: str) -> Any:
    """Answer with a static file of the page."""
    return bottle.static_file(name, root=str(STATIC))


class Site:
    """The answers of the web server; each method is a route."""

    def __init__(self, lab: Lab, book: Book, live: Live) -> None:
        self._lab = lab
        self._book = book
        self._live = live
        self._queues = Moments(book.folder)

    def application(self) -> bottle.Bottle:
        """Return the WSGI application with the routes of this site."""
        app = bottle.Bottle()
        app.route("/", "GET", lambda: static_file("index.html"))
        app.route("/static/<name>", "GET", static_file)
        app.route("/lab", "GET", answering(self.lab))
        app.route("/timeline", "GET", answering(self.timeline))
        app.route("/moments", "GET", answering(self.moments))
        app.route("/activities", "GET", answering(self.activities))
        app.route("/activity/<number:int>", "GET", answering(self.activity))
        app.route("/fields/<number:int>", "GET", answering(self.fields))
        app.route("/queues/<number:int>", "GET", answering(self.queues))
        app.route("/reference/<subject>", "GET", self.reference)
        app.route("/act", "POST", answering(self.act))
        app.route("/events", "GET", self.events)
        return app

    def lab(self) -> dict[str, Any]:
        """Answer with hosts, functions, and the length of the log."""
        self._book.forget()
        reader = LogReader(self._lab.reader.folder)
        log = length(reader)
        found = {"log": log}
        first = self._book.opening(log["end"])
        return self._lab.description() | found | ({} if first is None else {"open": first})

    def timeline(self) -> dict[str, Any]:
        """Answer with the lanes of the time axis, from second `since` to `until`."""
        asked = bottle.request.query
        since, until = (float(asked.get(name, "0")) for name in ("since", "until"))
        if not -_LATEST < since <= until < _LATEST:
            raise bottle.HTTPError(400, "from `since` to `until` is no time of a log")
        return timeline(LogReader(self._lab.reader.folder), since, until)

    def moments(self) -> dict[str, Any]:
        """Answer with the faults, changes of links, resets and orders of the log."""
        return {"moments": moments(LogReader(self._lab.reader.folder))}

    def activities(self) -> dict[str, Any]:
        """Answer with a part of the list: from event `first` on, or up to before event `before`."""
        asked = bottle.request.query
        text = asked.getunicode("text", "")[:_LONGEST_TEXT]
        failed = asked.get("failed") == "1"
        query = Query(asked.get("kind", ""), asked.get("device", ""), failed, text)
        if asked.get("before"):
            return self._book.before(_number(asked["before"]), COUNT, query).as_json()
        return self._book.page(_number(asked.get("first", "0")), COUNT, query).as_json()

    def activity(self, number: int) -> dict[str, Any]:
        """Answer with the activity that has event `number`, and its steps; else 404."""
        found = self._book.detail(number)
        if found is None:
            raise bottle.HTTPError(404, f"no activity has event {number}")
        if self._lab.socket is None:  # a log that is written is searched without, until asked for
            self._book.gather_words()
        return found

    def fields(self, number: int) -> dict[str, Any]:
        """Answer with the fields of event `number` by name, each with its row of the reference."""
        event = self._book.event(number)
        if event is None:
            raise bottle.HTTPError(404, f"there is no event {number}")
        found = []
        for each in named_fields(event):
            table, name = each.table.name, each.name
            register = name.partition(".")[0]  # the reference has a row for all of its bits
            found.append(
                {
                    "name": f"{table}.{name}",
                    "offset": each.offset,
                    "value": each.value,
                    "meaning": each.meaning,
                    "link": f"reference/{reference.subjects()[id(each.table)]}#{table}.{register}",
                }
            )
        return {"fields": found}

    def queues(self, number: int) -> dict[str, Any]:
        """Answer with the state of queue pair `qpn` of `device` after event `number`, and now."""
        asked = bottle.request.query
        device = asked.getunicode("device", "")
        wanted = (device, _number(asked.get("qpn", ""))) if device else None
        return queue_answer(self._queues, number, wanted)

    def reference(self, subject: str) -> str:
        """Answer with a page of the register reference, else 404."""
        found = reference_page(subject)
        if found is None:
            raise bottle.HTTPError(404, "there is no such page of the reference")
        return found

    def act(self) -> dict[str, Any]:
        """Carry out the order of a button: `{"word": "link", "name": "a/1", "action": "down"}`."""
        if (bottle.request.content_length or 0) > _MOST_BODY:
            raise bottle.HTTPError(413, "too long")
        order = bottle.request.json
        if not isinstance(order, dict):
            raise bottle.HTTPError(400, "this is no JSON object")
        words = (str(order.get(name, "")) for name in ("word", "name", "action"))
        return {"done": self._lab.act(*words)}

    def events(self) -> Iterator[str]:
        """Answer with the stream of server-sent events."""
        try:
            messages = self._live.messages()
        except TooManyPages:
            raise bottle.HTTPError(503, "too many pages are open") from None
        bottle.response.content_type = "text/event-stream; charset=UTF-8"
        return messages


def answering(action: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """Wrap an action to answer in JSON, for its errors `{"error": …}` with status 4xx."""

    def answer(**values: Any) -> str:
        bottle.response.content_type = "application/json"
        try:
            return json.dumps(action(**values), separators=(",", ":"))
        except (LabError, LogError) as error:
            bottle.response.status = 409
            return json.dumps({"error": str(error)})
        except bottle.HTTPError as error:
            bottle.response.status = error.status_code
            return json.dumps({"error": error.body})
        except (ValueError, RecursionError):
            bottle.response.status = 400
            return json.dumps({"error": "the request is damaged: load the page anew"})

    return answer


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise bottle.HTTPError(400, f"{text[:40]!r} is no number of an event")
    return int(text)


class _Server(ThreadingMixIn, WSGIServer):
    """A WSGI server with a thread per connection; the threads do not keep the program alive."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """A request handler that prints no line for each request."""

    timeout = 30
    """The seconds in which a request must arrive; an answer may take longer."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def serve(site: bottle.Bottle, secret: str, port: int) -> WSGIServer:
    """Return a server that is bound to 127.0.0.1, not yet running. Raises `OSError`."""
    server = _Server(("127.0.0.1", port), _Quiet)
    server.set_app(Gate(site, secret, server.server_port))
    return server
