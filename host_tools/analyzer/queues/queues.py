"""The queue pairs of a log as they are after each event, in one pass.

A state follows from commands that were carried out, completions in error and events about a
queue pair: the log has no record of a state itself. What is kept of a queue pair is replaced when
it changes, so a copy of all of them costs no more than the list of their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import function_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.activity.commands import RECORD
from bluebridge.host_tools.analyzer.devices.model import EventKind, PairContext
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of
from bluebridge.host_tools.analyzer.queues import rings
from bluebridge.host_tools.analyzer.transaction import OK

KINDS = rings.KINDS | {Kind.COMMAND, Kind.RESET}
"""The kinds of the events that change a queue."""
QPN_MASK = 0xFFFFFF
MOST = 1 << 16
"""The most queue pairs that are kept: more are in no log of a device of ours."""

Queue = tuple[str, int]
"""A function by its name, and the number of a queue of it."""


class Taken(NamedTuple):
    """A transition of a queue pair, and the event that shows it for the last time."""

    source: str
    target: str
    event: int


class Pair(NamedTuple):
    """A queue pair at a moment; `event` is the one since which it has been in its state.

    `state` is empty while the log has not shown it. `taken` are its transitions since the first
    state.
    """

    state: str = ""
    event: int = 0
    taken: tuple[Taken, ...] = ()
    context: PairContext | None = None


class Queues:
    """The queue pairs of all functions after the events that were fed."""

    def __init__(self, pairs: dict[Queue, Pair] | None = None) -> None:
        self.pairs = pairs or {}
        self.rings = rings.Rings()
        self._mailboxes: dict[str, bytes] = {}

    def copy(self) -> Queues:
        """Return the queues as they are now, which further events do not change."""
        found = Queues(dict(self.pairs))
        found.rings = self.rings.copy()
        found._mailboxes = dict(self._mailboxes)
        return found

    def __len__(self) -> int:
        """Return the number of queues that are kept."""
        return len(self.pairs) + len(self.rings)

    def feed(self, event: Event) -> None:
        """Take the next event."""
        if not model_of(event.device).is_adapter:
            return
        kind, what = event.kind, event.what
        if kind is Kind.COMMAND:
            self._command(event)
        elif kind is Kind.RESET:
            self._reset(event)
        elif what is What.MAILBOX_IN:
            self._mailboxes[event.device] = event.data
        else:
            if what is What.CQE:
                self._completed(event)
            elif what is What.EQE:
                self._announced(event)
            self.rings.feed(event)

    def _command(self, event: Event) -> None:
        mailbox = self._mailboxes.pop(event.device, b"")
        found = RECORD.fullmatch(event.text)
        if found is None or found["status"] != OK:
            return
        states = adapter_of(event.device).states
        known = states.transitions.get(found["name"])
        if known is None:
            self.rings.commanded(event, found["name"], int(found["in_mod"], 16), mailbox)
            return
        queue = function_of(event.device), int(found["in_mod"], 16) & QPN_MASK
        pair = self.pairs.get(queue, _UNKNOWN)
        source = pair.state or (known.sources[0] if len(known.sources) == 1 else "")
        if source == states.names[0] and known.target != source:
            pair = Pair(source, context=states.context(mailbox))
            self.rings.pair_made(*queue, pair.context)
        self._move(queue, pair, source, known.target, event.number)

    def _completed(self, event: Event) -> None:
        """A send that failed closes its queue pair, or its send queue."""
        adapter = adapter_of(event.device)
        if adapter.failure(event.data) is None:
            return
        done = adapter.completed(event.data)
        if done is not None:
            self._fail(event, done.qpn, send=True)

    def _announced(self, event: Event) -> None:
        found = adapter_of(event.device).event(event.data)
        if found.kind is EventKind.FAULT and found.number is not None:
            self._fail(event, found.number, send=False)

    def _fail(self, event: Event, qpn: int, *, send: bool) -> None:
        states = adapter_of(event.device).states
        queue = function_of(event.device), qpn
        pair = self.pairs.get(queue, _UNKNOWN)
        flushes = send and pair.context is not None and pair.context.flushes
        target = states.flushing if flushes else states.failed
        if pair.state and (pair.state, target) in states.failures:
            self._move(queue, pair, pair.state, target, event.number)

    def _move(self, queue: Queue, pair: Pair, source: str, target: str, number: int) -> None:
        if source == target:
            return
        taken = pair.taken
        if source:
            others = [each for each in taken if each[:2] != (source, target)]
            taken = (*others, Taken(source, target, number))
        if queue in self.pairs or len(self.pairs) < MOST:
            self.pairs[queue] = Pair(target, number, taken, pair.context)

    def _reset(self, event: Event) -> None:
        """Hardware has no queue pair of a function that is reset any more."""
        function, first = function_of(event.device), adapter_of(event.device).states.names[0]
        for queue, pair in list(self.pairs.items()):
            if queue[0] == function:
                self._move(queue, pair, pair.state, first, event.number)


_UNKNOWN = Pair()
