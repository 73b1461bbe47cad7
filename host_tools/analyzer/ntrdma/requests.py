"""Requests of NTRDMA, and the batches in which the peer is told of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.ntrdma.areas import Queue
from bluebridge.host_tools.analyzer.ntrdma.entries import Send
from bluebridge.host_tools.analyzer.ntrdma.publications import Publication, Stored


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

    @property
    def answers(self) -> list[Publication]:
        """The publications that answered the requests; one may answer other batches, too."""
        return list(dict.fromkeys(each.answer for each in self.works if each.answer is not None))


def deal_sent(data: list[Stored], works: list[Work]) -> None:
    """Assign the data that preceded the entries to the requests."""
    _deal(data, works, _carries_data, lambda work: work.data)


def deal_read(data: list[Stored], works: list[Work]) -> None:
    """Assign the data that preceded the completions to the reads."""
    _deal(data, works, _is_read, lambda work: work.read)


def _carries_data(work: Work) -> bool:
    """Return whether the data of a request precede its entry."""
    return work.entry is not None and work.entry.status == WorkStatus.OK and not _is_read(work)


def _is_read(work: Work) -> bool:
    """Return whether the data of a request come with its completion."""
    return work.op == WorkCode.READ


def _deal(
    data: list[Stored],
    works: list[Work],
    takes: Callable[[Work], bool],
    part: Callable[[Work], list[Stored]],
) -> None:
    """Assign each request, in order, as many stores as it has bytes; the last gets the rest."""
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
