"""Words of the control socket that are about the bus log.

mark [@GUEST] TEXT  a note in the log, which `bluebridge log --from-mark TEXT` begins at;
                    it is of the functions of GUEST only
log stop [TEXT]     end the log, for a reason that it then has; devices go on
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.buslog.marks import MAX_TEXT, mark_text
from bluebridge.device.buslog.record import MARK_OF_GUEST, MARK_OF_PAIR
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.layout.buslog import Kind


class LogCommands:
    """Executes control lines about the bus log of a server."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self.words: dict[str, Callable[[Sequence[str]], list[str]]] = {
            "mark": self._mark,
            "log": self._log,
        }

    def _mark(self, words: Sequence[str]) -> list[str]:
        self._check_active()
        if self._events.stopped:
            raise ValueError("the log has been stopped: `bluebridge ps` says why")
        device, scope = 0, MARK_OF_PAIR
        if words and words[0].startswith("@"):
            functions = self._events.functions_of(words[0][1:])
            if functions:
                device, scope = self._events.device(functions[0]), MARK_OF_GUEST
                words = words[1:]
        if not words:
            raise ValueError("write: mark TEXT")
        text = mark_text(_bounded(words)).encode()
        self._events.work = 0
        self._events.record(device, Kind.NOTE, scope, 0, len(text), text)
        return []

    def _log(self, words: Sequence[str]) -> list[str]:
        self._check_active()
        if not words or words[0] != "stop":
            raise ValueError("write: log stop [TEXT]")
        if not self._events.stop(_bounded(words[1:]) or "by hand"):
            raise ValueError("the log has been stopped already")
        return []

    def _check_active(self) -> None:
        if not self._events.active:
            raise ValueError("there is no bus log: start the server with --log DIR")


def _bounded(words: Sequence[str]) -> str:
    """Return the text of a mark or of a reason; raises `ValueError` when it is too long."""
    text = " ".join(words)
    if len(text) > MAX_TEXT:
        raise ValueError(f"the text has {len(text)} letters; at most {MAX_TEXT} are possible")
    return text
