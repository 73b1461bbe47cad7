"""Requests of NTRDMA as work requests with transactions on both buses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.devices.model import named
from bluebridge.host_tools.analyzer.ntrdma.requests import Batch, Stored, Work
from bluebridge.host_tools.analyzer.ntrdma.stores import Begin, Carrier
from bluebridge.host_tools.analyzer.transaction import PostedBy, Role, Transaction, Transfer


def transfers_of(batches: Iterable[Batch], number: Callable[[], int]) -> Iterator[Transfer]:
    """Yield the requests of batches that have words; `number` numbers them."""
    for batch in batches:
        for place, work in enumerate(batch.works):
            yield _transfer(work, batch, place, number())


def _transfer(work: Work, batch: Batch, place: int, number: int) -> Transfer:
    tree = _Tree(batch.sent.sender)
    sent, answer = batch.sent, work.answer
    tree.add([*work.data, *sent.told])
    if answer is not None:
        tree.answer([*work.read, *answer.told])
    entry = work.entry
    transfer = Transfer(batch.sent.sender, work.queue.key, work.index, number)
    if not place:  # the others of a batch have no write of their own
        by_engine = batch.sent.index.store.carrier.is_descriptor
        transfer.posted_by = PostedBy.DOORBELL if by_engine else PostedBy.STORES
    transfer.opcode = "" if entry is None else named(WorkCode, entry.op)
    transfer.length = 0 if entry is None else entry.length
    transfer.peer = batch.peer
    transfer.status = "" if work.status is None else named(WorkStatus, work.status)
    transfer.transactions = tree.transactions()
    transfer.notes += _notes(work, batch, transfer.transactions)
    return transfer


def _notes(work: Work, batch: Batch, transactions: list[Transaction]) -> Iterator[str]:
    if work.receive_event is not None and work.entry is not None:
        event = work.receive_event
        yield f"receive {work.entry.receive} was posted before, told with event {event}"
    if len(batch.works) > 1:
        number = work.index - batch.works[0].index + 1
        yield f"request {number} of a batch of {len(batch.works)}"
    if any(one.repeated for one in transactions):
        yield "*: listed with an earlier work request, too, and counted there"


class _Tree:
    """Transactions with their causes, put together out of order."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._parts: list[tuple[Transaction, Transaction | None]] = []
        self._begins: dict[Begin, Transaction] = {}
        self._carriers: set[Carrier] = set()
        self._root: Transaction | None = None

    def add(self, stored: list[Stored]) -> None:
        """Stores, below what made their carriers begin."""
        for each in stored:
            self._add(each)

    def answer(self, stored: list[Stored]) -> None:
        """Stores of the peer, below the last transaction so far."""
        if self._parts:
            self._root = max((one for one, _ in self._parts), key=lambda one: one.number)
            arrivals = [one for one, _ in self._parts if one.remote]
            self._root = max(arrivals, key=lambda one: one.number, default=self._root)
        self.add(stored)

    def transactions(self) -> list[Transaction]:
        """Return all transactions in the order of the log, each with the place of its cause."""
        ordered = sorted(self._parts, key=lambda part: part[0].number)
        places = {id(one): place for place, (one, _) in enumerate(ordered)}
        for one, cause in ordered:
            one.parent = None if cause is None else places[id(cause)]
        return [one for one, _ in ordered]

    def _add(self, stored: Stored) -> None:
        carrier = stored.store.carrier
        if carrier in self._carriers:
            return
        self._carriers.add(carrier)
        repeated, carrier.listed = carrier.listed, True
        first = self._put(carrier.events[0], self._begin(carrier.begin), repeated)
        what = "descriptor"
        if not carrier.is_descriptor:
            what = f"{carrier.events[0].length} bytes stored into the window"
        first.text = f"{what}, {stored.purpose}"
        read = write = first
        for event in carrier.events[1:]:
            kind = event.what
            cause = write if kind is What.WINDOW else first if kind is What.MESSAGE else read
            if kind is What.COPY and event.kind is Kind.DMA_READ:
                one = read = write = self._put(event, first, repeated)
            else:
                one = self._put(event, cause, repeated)
                write = one if kind is What.COPY else write
            one.text = _text(event, stored)

    def _begin(self, begin: Begin | None) -> Transaction | None:
        """Return the doorbell of the engine, or the last transaction before it."""
        if begin is None:
            return self._root
        found = self._begins.get(begin)
        if found is None:
            repeated, begin.listed = begin.listed, True
            found = self._begins[begin] = self._put(begin.event, self._root, repeated)
            found.role = Role.DOORBELL
            found.text = f"doorbell of the DMA engine, {begin.descriptors} descriptors"
        return found

    def _put(self, event: Event, cause: Transaction | None, repeated: bool) -> Transaction:
        one = transaction_of(event)
        one.remote = host_of(event.device) != self._machine
        one.repeated = repeated
        self._parts.append((one, cause))
        return one


def _text(event: Event, stored: Stored) -> str:
    if event.what is What.COPY:
        way = "write into the window" if event.kind is Kind.DMA_WRITE else "read"
        return f"{way}, {event.length} bytes"
    if event.what is What.COMPLETION:
        return "completion word of the descriptor"
    return stored.words or f"{stored.place.use.value}, {event.length} bytes"
