"""Requests of NTRDMA, and the batches in which the peer is told of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.ntrdma.memory import Queue, Use
from bluebridge.host_tools.analyzer.ntrdma.ports import Place
from bluebridge.host_tools.analyzer.ntrdma.resources import Send
from bluebridge.host_tools.analyzer.ntrdma.stores import Store

MOST_WAITING = 1 << 13
"""Stores of data and entries of one machine that wait at most for their index."""
MOST_UNANNOUNCED = 256
"""Publications of one machine that wait for an interrupt, and bells of one, at most."""

_WITH_DATA = (Use.SENDS, Use.COMPLETIONS, Use.LENGTHS)


@dataclass(slots=True, eq=False)
class Stored:
    """A store with its use at that time, and a description if these are wanted."""

    store: Store
    place: Place
    words: str = ""
    purpose: str = ""


@dataclass(slots=True, eq=False)
class Publication:
    """Entries and their data that one machine published to the other by one index.

    `use` is that of the ring, `count` how many entries the index tells of, None for an impossible
    value. `message` is the interrupt that follows; `first_of_message` says whether no publication
    before this one has it, too.
    """

    use: Use
    sender: str
    queue: Queue | None
    count: int | None
    index: Stored
    data: list[Stored] = field(default_factory=list)
    entries: list[Stored] = field(default_factory=list)
    bells: list[Stored] = field(default_factory=list)
    message: Stored | None = None
    first_of_message: bool = True

    @property
    def told(self) -> list[Stored]:
        """The stores except those of data: entries, index, bells, interrupt."""
        last = [] if self.message is None else [self.message]
        return [*self.entries, self.index, *self.bells, *last]

    def stored_entries(self) -> dict[int, bytes | None]:
        """Return the entries by place in the ring; None for those that the log has not kept."""
        found: dict[int, bytes | None] = {}
        for each in self.entries:
            found.update(each.place.entries)
        return found


class Turn:
    """The stores of a machine that are not published, or published and not interrupted for."""

    def __init__(self) -> None:
        self._data: deque[Stored] = deque(maxlen=MOST_WAITING)
        self._entries: deque[Stored] = deque(maxlen=MOST_WAITING)
        self._unannounced: deque[Publication] = deque(maxlen=MOST_UNANNOUNCED)

    def add(self, stored: Stored) -> None:
        """Take a store of data, or of entries of a ring."""
        (self._data if stored.place.area is None else self._entries).append(stored)

    def publish(self, publication: Publication) -> None:
        """Take a store of an index, which publishes the entries of its ring and their data."""
        ring, queue = publication.use, publication.queue
        publication.entries = [
            each for each in self._entries if each.place.use is ring and each.place.queue is queue
        ]
        self._entries.clear()
        if ring in _WITH_DATA:
            waiting, self._data = self._data, deque(maxlen=MOST_WAITING)
            for each in waiting:
                frame = each.place.use is Use.FRAME
                (publication.data if frame is (ring is Use.LENGTHS) else self._data).append(each)
        self._unannounced.append(publication)

    def bell(self, stored: Stored) -> None:
        """Take a store of a bell for the latest publications."""
        if self._unannounced and len(self._unannounced[-1].bells) < MOST_UNANNOUNCED:
            self._unannounced[-1].bells.append(stored)

    def interrupt(self, stored: Stored) -> None:
        """Take an interrupt, for all bells since the last one."""
        rung = [each for each in self._unannounced if each.bells]
        for number, publication in enumerate(rung):
            publication.message = stored
            publication.first_of_message = not number
        self._unannounced.clear()


@dataclass(slots=True, eq=False)
class Work:
    """A request: entry `slot` of a send ring, and the `index`-th request of its queue pair.

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
    """The stores of the data of a read."""
    receive_event: int | None = None
    """Number of the event that told the sender of the receive which the request takes."""

    @property
    def op(self) -> int | None:
        """The operation of the request, a `WorkCode`; None when the log has no entry."""
        return None if self.entry is None else self.entry.op


@dataclass(slots=True, eq=False)
class Batch:
    """Requests of one queue pair that machine `peer` was told of at once."""

    sent: Publication
    peer: str
    works: list[Work]
    waiting: int
    """Number of requests that are not answered."""
    held: int = 0
    """Number of stores of the batch."""
    own_answers: list[Publication] = field(default_factory=list)
    """Publications that answered its requests, and none of an earlier batch."""

    @property
    def queue(self) -> Queue:
        """The queue pair of the requests."""
        return self.works[0].queue


def deal_sent(data: list[Stored], works: list[Work]) -> None:
    """Assign the data that preceded the entries to the requests."""
    good = (each for each in works if each.entry is not None and each.entry.status == WorkStatus.OK)
    _deal(data, [(work, work.data) for work in good if work.op != WorkCode.READ])


def deal_read(data: list[Stored], works: list[Work]) -> None:
    """Assign the data that preceded the completions to the reads."""
    _deal(data, [(work, work.read) for work in works if work.op == WorkCode.READ])


def _deal(data: list[Stored], takers: list[tuple[Work, list[Stored]]]) -> None:
    """Assign each request, in order, as many stores as it has bytes; the last gets the rest."""
    waiting = deque(data)
    for work, taken in takers:
        left = work.entry.length if work.entry is not None else 0
        while waiting and left > 0:
            stored = waiting.popleft()
            left -= stored.store.event.length
            taken.append(stored)
    if takers:
        takers[-1][1].extend(waiting)
