"""Requests of NTRDMA that the peer was told of at once, with its answers: `batches` of a log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.device.buslog.ntrdma.entries import Send, send_of
from bluebridge.device.buslog.ntrdma.memory import INDEX_OF, Queue, Use
from bluebridge.device.buslog.ntrdma.ports import WORD, Place, Ports
from bluebridge.device.buslog.ntrdma.publications import Publication, Stored, Turn
from bluebridge.device.buslog.ntrdma.stores import Store, StoreFinder
from bluebridge.device.buslog.ntrdma.text import purpose, store_text
from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ntrdma.work import COMPLETION, WorkCode, WorkStatus

LINGER = 64
"""Stores after which a batch that is answered is given out; until then its interrupt may follow."""
MOST_HELD = 1 << 15
"""Stores of batches that are not answered, at most: the oldest are given out as they are."""
_DATA_KEPT = 64


@dataclass(slots=True, eq=False)
class Work:
    """A request: entry `slot` of a send ring, the `index`-th since the queue pair was made.

    `entry` is None when the log has not kept it; `status` is None until the peer has answered.
    """

    queue: Queue
    slot: int
    index: int
    entry: Send | None
    data: list[Stored] = field(default_factory=list)
    status: int | None = None
    answer: Publication | None = None
    read: list[Stored] = field(default_factory=list)
    """The data of a read."""
    receive_event: int | None = None
    """The event that told the sender of the receive that it takes."""

    @property
    def op(self) -> int | None:
        """The `WorkCode`."""
        return None if self.entry is None else self.entry.op


@dataclass(slots=True, eq=False)
class Batch:
    """Requests of one queue pair that machine `peer` was told of at once."""

    sent: Publication
    peer: str
    works: list[Work]
    waiting: int
    """Requests that are not answered."""
    held: int = 0
    """Stores of all of it."""
    own_answers: list[Publication] = field(default_factory=list)
    """What answered its requests, and none of an earlier batch."""

    @property
    def queue(self) -> Queue:
        """Whose requests they are."""
        return self.works[0].queue

    @property
    def answers(self) -> list[Publication]:
        """What answered them; one may answer other batches, too."""
        return list(dict.fromkeys(each.answer for each in self.works if each.answer is not None))


class BatchFinder:
    """Takes the events of a log in order and returns batches when they are answered."""

    def __init__(self, *, words: bool = False) -> None:
        """`words`: say in each `Stored` what it is."""
        self.ports = Ports()
        self._with_words = words
        self._finder = StoreFinder()
        self._turns: dict[str, Turn] = {}
        self._waiting: dict[Queue, deque[tuple[Work, Batch]]] = {}
        """Requests that are not answered."""
        self._answered: deque[tuple[int, Batch]] = deque()
        self._open: dict[Batch, None] = {}
        self._given: list[Batch] = []
        self._stores = self._held = 0
        self.totals: Counter[tuple[str, Use]] = Counter()
        """All stores so far, by the machine that stores and what for."""

    def feed(self, event: Event) -> list[Batch]:
        """The batches that are complete after this event."""
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
            if kind:
                self.ports.scratchpad(event, machine, kind)
        return _NOTHING

    def finish(self) -> list[Batch]:
        """All that are left, complete or not."""
        rest = list(self._open)
        self._open.clear()
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
            slots = [(before + number) % queue.sends for number in range(count)]
            self._sent(publication, queue, slots)
        elif publication.use is Use.COMPLETIONS:
            slots = [(before + number) % queue.sends for number in range(count)]
            self._completed(publication, queue, slots)
        elif publication.use is Use.RECEIVES:
            number = publication.index.store.event.number
            for slot in publication.kept():
                queue.receive_events[slot] = number

    # -- requests -------------------------------------------------------------------------------

    def _sent(self, publication: Publication, queue: Queue, slots: list[int]) -> None:
        known = publication.kept()
        works = []
        for slot in slots:
            entry = known.get(slot)
            work = Work(queue, slot, queue.sent, None if entry is None else send_of(entry))
            works.append(work)
            queue.sent += 1
        peer = publication.index.store.receiver
        self._find_receives(queue, peer, works)
        _deal(publication.data, works, _carries_data, lambda work: work.data)
        batch = Batch(publication, peer, works, len(works))
        self._open[batch] = None
        self._hold(batch, len(works) + len(publication.data) + len(publication.entries))
        self._waiting.setdefault(queue, deque()).extend((work, batch) for work in works)

    def _find_receives(self, queue: Queue, peer: str, works: list[Work]) -> None:
        target = self.ports.memory(peer).queues.get(queue.peer_key)
        for work in works:
            if target is not None and work.entry is not None and work.op in _WITH_RECEIVE:
                slot = work.entry.receive % target.receives
                work.receive_event = target.receive_events.get(slot)

    def _completed(self, publication: Publication, queue: Queue, slots: list[int]) -> None:
        known = publication.kept()
        waiting = self._waiting.get(queue)
        works = []
        for slot in slots:
            if not waiting or waiting[0][0].slot != slot:
                continue  # the log, or what is kept of it, begins behind this request
            work, batch = waiting.popleft()
            entry = known.get(slot)
            work.status = None if entry is None else COMPLETION.get(entry, "status")
            work.answer = publication
            works.append(work)
            if len(works) == 1:
                batch.own_answers.append(publication)
            batch.waiting -= 1
            if not batch.waiting:
                self._answered.append((self._stores, batch))
        if not waiting:
            self._waiting.pop(queue, None)
        _deal(publication.data, works, _is_read, lambda work: work.read)
        if works:
            self._hold(batch, len(publication.data) + len(publication.entries))

    # -- the end of a batch ---------------------------------------------------------------------

    def _hold(self, batch: Batch, stores: int) -> None:
        batch.held += stores
        self._held += stores
        while self._held > MOST_HELD and len(self._open) > 1:
            self._give(next(iter(self._open)))

    def _ready(self) -> list[Batch]:
        done = self._answered
        while done and done[0][0] + LINGER < self._stores:
            self._give(done.popleft()[1])
        if not self._given:
            return _NOTHING
        given, self._given = self._given, []
        return given

    def _give(self, batch: Batch) -> None:
        if batch not in self._open:
            return
        del self._open[batch]
        self._held -= batch.held
        waiting = self._waiting.get(batch.queue)
        while waiting and waiting[0][1] is batch:
            waiting.popleft()
        self._given.append(batch)


_WITH_RECEIVE = range(WorkCode.SEND, WorkCode.WRITE_IMMEDIATE + 1)
_NOTHING: list[Batch] = []


def _carries_data(work: Work) -> bool:
    """Whether the data of a request are in front of its entry."""
    return work.entry is not None and work.entry.status == WorkStatus.OK and not _is_read(work)


def _is_read(work: Work) -> bool:
    """Whether its data come with its completion."""
    return work.op == WorkCode.READ


def _deal(
    data: list[Stored],
    works: list[Work],
    takes: Callable[[Work], bool],
    part: Callable[[Work], list[Stored]],
) -> None:
    """Give each request, in order, as many stores as it has bytes; the last gets the rest."""
    takers = [work for work in works if takes(work)]
    waiting = deque(data)
    for work in takers:
        left = work.entry.length if work.entry is not None else 0
        while waiting and left > 0:
            stored = waiting.popleft()
            left -= stored.store.event.length
            part(work).append(stored)
    if takers:
        part(takers[-1]).extend(waiting)


def batches(folder: Path | LogReader) -> Iterator[Batch]:
    """The batches of a log, in the order in which they were answered; raises `LogError`."""
    yield from batches_of(folder if isinstance(folder, LogReader) else LogReader(folder))


def batches_of(events: Iterable[Event]) -> Iterator[Batch]:
    """The batches in a log's events."""
    finder = BatchFinder()
    for event in events:
        yield from finder.feed(event)
    yield from finder.finish()
