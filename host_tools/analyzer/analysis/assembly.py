"""Assembles the event stream into work requests, in one pass and bounded memory.

The log names the work request of each event (`Event.work`). What the device cannot know is matched
here: the write that posted it (a doorbell names a queue pair, a BlueFlame entry also its index),
and the event entry and interrupt that announce its completion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import (
    HEAD,
    INDEX_MASK,
    WORK_DEVICE_SHIFT,
    WORK_QPN_SHIFT,
    function_of,
)
from bluebridge.device.buslog.wire import packet_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.device.packets.message import RELIABLE
from bluebridge.host_tools.analyzer.analysis import packets
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.analysis.ntrdma_transfers import transfers_of
from bluebridge.host_tools.analyzer.analysis.triggers import (
    BlueFlameStores,
    CompletionNotifications,
    Triggers,
)
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.ntrdma.batches import BatchFinder
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS
from bluebridge.host_tools.analyzer.transaction import PostedBy, Role, Transaction, Transfer

LINGER = 512
"""Events after a work request's end in which its event entry and interrupt may follow."""
MAX_OPEN = 4096
"""Work requests of one queue pair without a completion that are kept at most."""

LOW = 0xFFFF
"""Mask of the bits of an index that completions and stored entries contain."""
HALF = INDEX_MASK >> 1
_QPN_MASK = 0xFFFFFF
_BACK = (
    "RDMA_READ", "ATOMIC_CS", "ATOMIC_FA", "MASKED_ATOMIC_CS", "MASKED_ATOMIC_FA",
    "ATOMIC_MASKED_CS", "ATOMIC_MASKED_FA",
)  # fmt: skip
Queue = tuple[str, int]
_NOTHING: list[Transfer] = []

_POSTED = (Role.DOORBELL, Role.BLUEFLAME)
_BEGUN = (Role.WQE, Role.ENTRY)
_ASKED = (Role.REQUEST,)
_LAST = (Role.RESPONSE, Role.REQUEST, Role.WQE, Role.ENTRY)


class TransferAssembler:
    """Assembles the events of a log, taken in order, into work requests."""

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices` are the names in the log's meta file; more may be appended later."""
        self._devices = devices
        self._open: dict[int, Transfer] = {}
        self._ends: dict[tuple[str, int, int], Transfer] = {}  # by the low bits of their index
        self._queues: dict[Queue, deque[int]] = {}  # what is not done yet, oldest first
        self._done: deque[tuple[int, int]] = deque()  # event number, work
        self._stores = BlueFlameStores()
        self._triggers = Triggers()
        self._notifications = CompletionNotifications()
        self._entries: dict[Queue, tuple[Event, Transaction]] = {}
        self._records: dict[Queue, Transaction] = {}  # read before the entry that they announce
        self._nouns: dict[Queue, str] = {}
        self._given: list[Transfer] = []
        self._began = 0

    def feed(self, event: Event) -> list[Transfer]:
        """Take the next event and return the work requests that are complete by it."""
        return self.take(event, transaction_of(event))

    def take(self, event: Event, one: Transaction) -> list[Transfer]:
        """Take an event as `feed` does, and mark its transaction if a work request has it."""
        role = one.role
        if event.kind is Kind.MMIO_WRITE or event.kind is Kind.MMIO_READ:
            self._triggers.access(self._stores.at(one) if role is Role.BLUEFLAME else None)
        if role is Role.BLUEFLAME:
            self._store(one)
        elif role is Role.DOORBELL:
            self._stores.begin(self._triggers.doorbell(one))
        elif role is Role.EQE:
            self._notifications.event(one)
        elif role is Role.INTERRUPT:
            self._notifications.interrupt(one)
        elif role is Role.EQ_ARM:
            self._notifications.armed(one)
        elif role is Role.NOTE:
            self._note(event, one)
        elif role is Role.ENTRY and not event.work:
            self._entries[one.device, one.obj] = event, one
        elif event.work and role is not Role.LINK and role is not Role.CONTROL:
            self._part(event, one)
        done = self._done
        while done and done[0][0] + LINGER < event.number:
            self._give(done.popleft()[1])
        if not self._given:
            return _NOTHING
        given, self._given = self._given, []
        return given

    def next_number(self) -> int:
        """Count a work request that begins now and return its number."""
        self._began += 1
        return self._began - 1

    def done(self) -> list[Transfer]:
        """Return the completed work requests at once, without event entries that come later."""
        while self._done:
            self._give(self._done.popleft()[1])
        given, self._given = self._given, []
        return given

    def finish(self) -> list[Transfer]:
        """Return the work requests that are left, complete or not, in the order they began."""
        self._triggers.access()
        rest = sorted(self._open.values(), key=lambda transfer: transfer.number)
        self._open.clear()
        return [_finished(transfer) for transfer in rest]

    # -- parts ----------------------------------------------------------------------------------

    def _store(self, store: Transaction) -> None:
        """Take a store into a BlueFlame page, whose entry the device may have fetched before."""
        burst, begins, known = self._stores.add(store)
        if known:
            late = self._ends.get((store.device, burst.qpn, burst.index or 0))
            if late is not None and late.posted_by in (PostedBy.FOUND, PostedBy.DOORBELL):
                self._triggers.late(burst, late)
            else:
                self._triggers.push(burst)
        elif begins:
            self._triggers.another_line(burst, store)

    def _note(self, event: Event, one: Transaction) -> None:
        transfer = self._open.get(event.work)
        if transfer is not None:
            transfer.take_note(one)
        elif one.told is not None and one.told.values.get("qpn"):
            self._triggers.note(one)

    def _part(self, event: Event, one: Transaction) -> None:
        role = one.role
        transfer = self._open.get(event.work) or self._pushed(event.work)
        if role is Role.CQE:
            self._completed(event, one)
            return
        if role in (Role.WQE, Role.ENTRY):
            transfer = self._begun(event, one, transfer)
        elif transfer is None:
            if role is Role.DOORBELL_RECORD:
                self._records[one.device, one.obj] = one
            return  # the log begins in the middle of this work request
        one.parent = _cause(transfer, one)
        one.remote = _is_remote(transfer, one)
        _add(transfer, one)
        if role is Role.REQUEST:
            self._sent(event, transfer)
        elif role is Role.RESPONSE:
            transfer.peer = transfer.peer or function_of(event.device)
            if _is_over(event, transfer):
                self._settle_up_to(event.number, transfer)

    def _begun(self, event: Event, one: Transaction, known: Transfer | None) -> Transfer:
        """Begin a work request whose entry was fetched, or taken from the BlueFlame register."""
        if known is not None:
            if one.role is Role.WQE and not known.count(Role.REQUEST, Role.CQE):
                return known  # the second piece of an entry at the end of the ring
            self._give(event.work)  # the queue pair was reset: a new work request with this index
        transfer = self._begin(event.work)
        self._nouns[transfer.device, transfer.qpn] = transfer.noun = one.noun
        adapter = adapter_of(event.device)
        if len(event.data) >= adapter.head:
            transfer.opcode, transfer.entry_bytes, *_ = adapter.send_head(event.data)
        self._triggers.take(transfer, entry=one.role is Role.ENTRY)
        record = self._records.pop((transfer.device, transfer.qpn), None)
        if record is not None and not record.given:
            record.parent = 0 if transfer.transactions else None
            transfer.take(record)
        for posting in transfer.transactions:
            posting.noun = one.noun
        return transfer

    def _pushed(self, work: int) -> Transfer | None:
        """The work request of an entry that was taken from a BlueFlame page before this event.

        The entry contains the low 16 bits of its index only, `work` all of them.
        """
        queue = self._device(work), work >> WORK_QPN_SHIFT & _QPN_MASK
        if queue not in self._entries:
            return None
        event, one = self._entries[queue]
        adapter = adapter_of(event.device)
        if len(event.data) < adapter.head or adapter.send_head(event.data).slot != work & LOW:
            return None
        del self._entries[queue]
        transfer = self._begun(replace(event, work=work), one, None)
        one.parent = _cause(transfer, one)
        _add(transfer, one)
        return transfer

    def _device(self, work: int) -> str:
        number = (work >> WORK_DEVICE_SHIFT) - 1
        return self._devices[number] if number < len(self._devices) else str(number)

    def _begin(self, work: int) -> Transfer:
        device, qpn = self._device(work), work >> WORK_QPN_SHIFT & _QPN_MASK
        if work in self._open:
            self._give(work)
        transfer = Transfer(device, qpn, work & INDEX_MASK, self.next_number())
        transfer.noun = self._nouns.get((device, qpn), transfer.noun)
        self._open[work] = transfer
        self._ends[device, qpn, work & LOW] = transfer
        queue = self._queues.setdefault((device, qpn), deque())
        queue.append(work)
        if len(queue) > MAX_OPEN:
            self._give(queue[0])
        return transfer

    def _sent(self, event: Event, transfer: Transfer) -> None:
        if (packet := packet_of(event)) is not None:
            if packets.sent(transfer, packet):
                self._settle_up_to(event.number, transfer)
            return
        if event.what is What.FRAME:
            transfer.length += event.length  # the frames of a burst are counted with its last entry
            return
        if len(event.data) < HEAD.size:
            return
        flags, _, _, _, psn, *_ = HEAD.unpack_from(event.data)
        transfer.psn, transfer.length, transfer.peer_qpn = psn, event.length, event.obj
        if not flags & RELIABLE:
            self._settle_up_to(event.number, transfer)

    def _completed(self, event: Event, one: Transaction) -> None:
        adapter = adapter_of(event.device)
        known = adapter.completed(event.data)
        transfer = self._open.get(event.work)
        if known is not None:
            found = self._ends.get((event.device, known.qpn, known.slot))
            if found is None and event.work:
                found = self._begin(event.work)  # it failed before its entry was read
            if found is None:
                return
            transfer = found
            transfer.status = known.status
            self._settle_up_to(event.number, transfer)
        elif transfer is None or adapter.failure(event.data) == adapter.flushed:
            return
        one.parent = _cause(transfer, one)
        one.remote = known is None
        _add(transfer, one)
        self._notifications.completion(one, transfer)

    # -- the end of a work request --------------------------------------------------------------

    def _settle_up_to(self, number: int, transfer: Transfer) -> None:
        """Complete this work request and all before it in its queue pair, as they are in order."""
        queue = self._queues.get((transfer.device, transfer.qpn))
        while queue and (transfer.index - (queue[0] & INDEX_MASK)) & INDEX_MASK <= HALF:
            self._done.append((number, queue.popleft()))

    def _give(self, work: int) -> None:
        """Make a work request ready to be returned, unless it was returned before."""
        transfer = self._open.pop(work, None)
        if transfer is None:
            return
        queue = self._queues[transfer.device, transfer.qpn]
        if work in queue:
            queue.remove(work)
        end = transfer.device, transfer.qpn, work & LOW
        if self._ends.get(end) is transfer:
            del self._ends[end]
        self._triggers.forget(transfer)
        self._given.append(_finished(transfer))


def transfers(folder: Path | LogReader) -> Iterator[Transfer]:
    """Yield the work requests of a log in the order of completion; raises `LogError`."""
    reader = folder if isinstance(folder, LogReader) else LogReader(folder)
    return assembled(reader, reader.meta["devices"])


def assembled(
    events: Iterable[Event], devices: Sequence[str], before: Iterable[Event] = ()
) -> Iterator[Transfer]:
    """Yield the work requests of `events`; `before` are those that tell NTRDMA's ports."""
    assembler = TransferAssembler(devices)
    finder, number = BatchFinder(words=True), assembler.next_number
    finder.skip(before)
    for event in events:
        yield from assembler.feed(event)
        if event.kind in KINDS:
            yield from transfers_of(finder.feed(event), number)
    yield from assembler.finish()
    yield from transfers_of(finder.finish(), number)


def _is_over(event: Event, transfer: Transfer) -> bool:
    """Return True for a response that ends a work request and all before it."""
    if (packet := packet_of(event)) is not None:
        return packets.ends(transfer, packet)
    return len(event.data) >= HEAD.size and HEAD.unpack_from(event.data)[2] == Syndrome.ACK


def _add(transfer: Transfer, one: Transaction) -> None:
    transfer.take(one)
    if one.remote and one.on_bus and not transfer.peer:
        transfer.peer = one.device


def _is_remote(transfer: Transfer, one: Transaction) -> bool:
    """Whether a transaction is on the peer's bus; a port's own peer is it until it responds."""
    if one.role is Role.RESPONSE or function_of(one.device) != transfer.device:
        return True
    return (
        one.role is not Role.REQUEST
        and bool(transfer.peer_qpn)
        and transfer.last_psn is None  # packets: the first has left before the next is read
        and transfer.count(Role.REQUEST) > transfer.count(Role.RESPONSE)
    )


def _cause(transfer: Transfer, one: Transaction) -> int | None:
    """Return the place of a transaction's cause: the latest one of the roles that can cause it."""
    remote = one.device != transfer.device
    role = one.role
    if remote or role is Role.RESPONSE:
        causes: tuple[Role, ...] = _ASKED
    elif role is Role.REQUEST:
        causes = _BEGUN
    else:
        causes = _POSTED if role in _BEGUN else _LAST
    for place in range(len(transfer.transactions) - 1, -1, -1):
        if transfer.transactions[place].role in causes:
            return place
    return None


def _finished(transfer: Transfer) -> Transfer:
    transfer.given = True
    fetched = sum(each.length for each in transfer.of(Role.PAYLOAD_READ, remote=False))
    if transfer.opcode not in _BACK and transfer.count(Role.REQUEST):
        transfer.inline = max(0, transfer.length - fetched)
    return transfer
