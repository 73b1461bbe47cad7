"""Requests of NTRDMA that the peer was told of at once, with its answers: `batches` of a log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ntrdma.work import COMPLETION, WorkCode
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.ntrdma.decoder import purpose, store_text
from bluebridge.host_tools.analyzer.ntrdma.memory import INDEX_OF, Queue, Use
from bluebridge.host_tools.analyzer.ntrdma.ports import Place, Ports
from bluebridge.host_tools.analyzer.ntrdma.requests import (
    Batch,
    Publication,
    Stored,
    Turn,
    Work,
    deal_read,
    deal_sent,
)
from bluebridge.host_tools.analyzer.ntrdma.resources import WORD, send_of
from bluebridge.host_tools.analyzer.ntrdma.stores import Store, StoreFinder

LINGER = 64
"""Stores after which an answered batch is returned, since its interrupt may follow until then."""
MOST_HELD = 1 << 15
"""Stores of unanswered batches that are kept at most; the oldest batches are returned early."""
_DATA_KEPT = 64

_WITH_RECEIVE = range(WorkCode.SEND, WorkCode.WRITE_IMMEDIATE + 1)
_NOTHING: list[Batch] = []


class BatchFinder:
    """Finds the batches in the events of a log, taken in order; returns them when answered."""

    def __init__(self, *, words: bool = False) -> None:
        """`words` says whether each `Stored` gets a description."""
        self.ports = Ports()
        self._with_words = words
        self._finder = StoreFinder()
        self._turns: dict[str, Turn] = {}
        self._waiting: dict[Queue, deque[tuple[Work, Batch]]] = {}
        """Requests that are not answered yet."""
        self._answered: deque[tuple[int, Batch]] = deque()
        self.unfinished: dict[Batch, None] = {}
        self._given: list[Batch] = []
        self._stores = self._held = 0
        self.totals: Counter[tuple[str, Use]] = Counter()
        """Number of stores so far, by the machine that stores and by use."""

    def feed(self, event: Event) -> list[Batch]:
        """Take the next event and return the batches that are complete by it."""
        store = self._finder.feed(event)
        if store is not None:
            self._stores += 1
            place = self.ports.place(store)
            self.totals[store.sender, place.use] += 1
            self._take(self._stored(store, place))
            self.ports.observe(store, place)
            return self._ready()
        if event.kind is Kind.MMIO_WRITE:
            machine, kind = self._finder.machine(event.device)
            if kind is DeviceKind.BRIDGE:
                self.ports.scratchpad(event, machine)
        return _NOTHING

    def skip(self, events: Iterable[Event]) -> None:
        """Learn the state of the ports from events whose batches are not wanted."""
        for event in events:
            self.feed(event)
        for known in (self.unfinished, self._answered, self._waiting, self.totals):
            known.clear()
        self._held = 0

    def finish(self) -> list[Batch]:
        """Return the remaining batches, complete or not."""
        rest = list(self.unfinished)
        self.unfinished.clear()
        return rest

    # -- stores ---------------------------------------------------------------------------------

    def _stored(self, store: Store, place: Place) -> Stored:
        if not self._with_words:
            return Stored(store, place)
        receiver = self.ports.memory(store.receiver)
        words = store_text(store.event, place, receiver)
        return Stored(store, place, words, purpose(place, receiver))

    def _take(self, stored: Stored) -> None:
        store, place = stored.store, stored.place
        turn = self._turns.get(store.sender)
        if turn is None:
            turn = self._turns[store.sender] = Turn()
        if place.use is Use.MESSAGE:
            turn.interrupt(stored)
        elif place.use in INDEX_OF and place.area is not None:
            value = int.from_bytes(store.event.data[:WORD], "little")
            count, ring = place.area.advance(value), INDEX_OF[place.use]
            publication = Publication(ring, store.sender, place.queue, count, stored)
            turn.publish(publication)
            if count and place.queue is not None:
                self._told(publication, place.queue, place.area.last, count)
        elif place.use is Use.BELL:
            turn.bell(stored)
        elif place.use is not Use.BLOCK:
            if place.area is None:
                store.event.data = store.event.data[:_DATA_KEPT]
            turn.add(stored)

    def _told(self, publication: Publication, queue: Queue, before: int, count: int) -> None:
        if publication.use is Use.SENDS:
            self._sent(publication, queue, before, count)
        elif publication.use is Use.COMPLETIONS:
            self._completed(publication, queue, before, count)
        elif publication.use is Use.RECEIVES:
            number = publication.index.store.event.number
            for slot in publication.stored_entries():
                queue.receive_events[slot] = number

    # -- requests -------------------------------------------------------------------------------

    def _sent(self, publication: Publication, queue: Queue, before: int, count: int) -> None:
        """Add requests from index `before` on; only those whose entries were stored."""
        known = publication.stored_entries()
        works = []
        for number in range(count) if len(known) >= count else ():
            slot = (before + number) % queue.sends
            entry = known.get(slot)
            work = Work(queue, slot, queue.sent, None if entry is None else send_of(entry))
            works.append(work)
            queue.sent += 1
        if not works:
            return
        peer = publication.index.store.receiver
        self._find_receives(queue, peer, works)
        deal_sent(publication.data, works)
        batch = Batch(publication, peer, works, len(works))
        self.unfinished[batch] = None
        self._hold(batch, len(works) + len(publication.data) + len(publication.entries))
        self._waiting.setdefault(queue, deque()).extend((work, batch) for work in works)

    def _find_receives(self, queue: Queue, peer: str, works: list[Work]) -> None:
        target = self.ports.memory(peer).queues.get(queue.peer_key)
        for work in works:
            if target is not None and work.entry is not None and work.op in _WITH_RECEIVE:
                slot = work.entry.receive % target.receives
                work.receive_event = target.receive_events.get(slot)

    def _completed(self, publication: Publication, queue: Queue, before: int, count: int) -> None:
        """Add answers from index `before` on, without those to requests before the log's start."""
        waiting = self._waiting.get(queue)
        if not waiting:
            return
        skipped = (waiting[0][0].slot - before) % queue.sends
        known = publication.stored_entries()
        works = []
        for _ in range(min(count - skipped, len(waiting))):
            work, batch = waiting.popleft()
            entry = known.get(work.slot)
            work.status = None if entry is None else COMPLETION.get(entry, "status")
            work.answer = publication
            works.append(work)
            if len(works) == 1:
                batch.own_answers.append(publication)
                self._hold(batch, len(publication.data) + len(publication.entries))
            batch.waiting -= 1
            if not batch.waiting:
                self._answered.append((self._stores, batch))
        if not waiting:
            del self._waiting[queue]
        deal_read(publication.data, works)

    # -- the end of a batch ---------------------------------------------------------------------

    def _hold(self, batch: Batch, stores: int) -> None:
        batch.held += stores
        self._held += stores
        while self._held > MOST_HELD and len(self.unfinished) > 1:
            self._give(next(iter(self.unfinished)))

    def _ready(self) -> list[Batch]:
        done = self._answered
        while done and done[0][0] + LINGER < self._stores:
            self._give(done.popleft()[1])
        if not self._given:
            return _NOTHING
        given, self._given = self._given, []
        return given

    def _give(self, batch: Batch) -> None:
        if batch not in self.unfinished:
            return
        del self.unfinished[batch]
        self._held -= batch.held
        waiting = self._waiting.get(batch.queue)
        while waiting and waiting[0][1] is batch:
            waiting.popleft()
        self._given.append(batch)


def batches(folder: Path | LogReader) -> Iterator[Batch]:
    """Yield the batches of a log, in the order in which they were answered; raises `LogError`."""
    yield from batches_of(folder if isinstance(folder, LogReader) else LogReader(folder))


def batches_of(events: Iterable[Event]) -> Iterator[Batch]:
    """Yield the batches in the events of a log."""
    finder = BatchFinder()
    for event in events:
        yield from finder.feed(event)
    yield from finder.finish()
