"""Queue pairs and rings along a log as they are after each event, in one pass.

A state follows from commands that were carried out, completions in error and events about a
queue pair: the log has no record of a state itself. It shows what crossed the bus. So the producer
of a send ring is what the adapter has fetched, that of a receive ring what a doorbell record said;
the consumer of a completion or event queue is what a doorbell or record said last.

What is kept of a queue is replaced when it changes, so a copy of all of them costs no more than the
list of their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import INDEX_MASK, function_of
from bluebridge.device.layout.buslog import SEND_ENTRIES, Kind, What
from bluebridge.device.layout.events import Values
from bluebridge.host_tools.analyzer.devices.model import (
    EventKind,
    FrameStates,
    PairContext,
    number_of,
)
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of
from bluebridge.host_tools.analyzer.transaction import OK, Role

_INDEX_KINDS = frozenset((Kind.DMA_READ, Kind.DMA_WRITE, Kind.MMIO_WRITE, Kind.BLUEFLAME))
"""The kinds of the events that change an index."""
_NO_MAILBOX = (-1, b"")
MOST = 1 << 16
"""The most queue pairs, and the most rings, that are kept: no log of a device of ours has more."""
LOW = 0xFFFF
"""The bits of an index of a send or receive ring that entries and records have."""
COUNTER = 0xFFFFFF
"""The bits of an index of a completion or event queue that doorbells and records have."""

RingName = tuple[str, Role, int]
"""A function, the role of the entries of the ring, and the number of its queue."""
_ARMS = {Role.CQ_ARM: Role.CQE, Role.EQ_ARM: Role.EQE}

KINDS = _INDEX_KINDS | {Kind.COMMAND, Kind.RESET}
"""The kinds of the events that change a queue."""
QPN_MASK = 0xFFFFFF

Queue = tuple[str, int]
"""A function by its name, and the number of a queue of it."""


class Ring(NamedTuple):
    """A ring at a moment: what is not known is None, `slots` 0.

    `record` is the address of the doorbell record of a completion queue, `events` the number of
    its event queue, `last` the index of the send entry that was fetched last.
    """

    slots: int = 0
    producer: int | None = None
    consumer: int | None = None
    record: int | None = None
    events: int | None = None
    last: int | None = None


class Completes(NamedTuple):
    """The completion queues of a queue pair, for sends and for receives; None while not known."""

    sends: int | None = None
    receives: int | None = None


class Rings:
    """The rings of all functions after the events that were fed."""

    def __init__(self) -> None:
        self.known: dict[RingName, Ring] = {}
        self.completes: dict[tuple[str, int], Completes] = {}
        self._strides: dict[tuple[str, int], int] = {}

    def copy(self) -> Rings:
        """Return the rings as they are now, which further events do not change."""
        found = Rings()
        found.known, found.completes = dict(self.known), dict(self.completes)
        found._strides = dict(self._strides)
        return found

    def __len__(self) -> int:
        """Return the number of rings that are kept."""
        return len(self.known)

    def feed(self, event: Event) -> None:
        """Take the next event of an adapter."""
        kind, what = event.kind, event.what
        if what is What.PAYLOAD:
            return
        function = function_of(event.device)
        if kind is Kind.MMIO_WRITE:
            self._armed(function, event)
        elif what in SEND_ENTRIES:
            self._fetched(function, event)
        elif kind is Kind.DMA_READ:
            if what is What.DOORBELL_RECORD:
                self._recorded(function, event)
        elif what is What.CQE:
            self._add(function, Role.CQE, event.obj)
            self._completed(function, event)
        elif what is What.EQE:
            self._add(function, Role.EQE, event.obj)

    def pair_made(self, function: str, qpn: int, context: PairContext | None) -> None:
        """Take a queue pair that is given to hardware, with empty rings."""
        send, receive = (0, 0) if context is None else (context.send_slots, context.receive_slots)
        self._put((function, Role.WQE, qpn), Ring(send, 0, 0))
        self._put((function, Role.RECEIVE_WQE, qpn), Ring(receive))
        self.completes.pop((function, qpn), None)
        self._strides.pop((function, qpn), None)
        if context is not None and (function, Role.WQE, qpn) in self.known:
            self._strides[function, qpn] = context.send_stride

    def commanded(self, event: Event, command: Values, mailbox: bytes) -> None:
        """Take a command that was carried out, by its values: it may make a ring, or move one."""
        adapter, name, number = adapter_of(event.device), command["name"], number_of(command)
        function = function_of(event.device)
        if name in adapter.made:
            role, read = adapter.made[name]
            found = read(mailbox)
            ring = Ring(0, 0, 0) if found is None else Ring(found.slots, 0, 0, *found[1:])
            self._put((function, role, number), ring)
        elif (moved := adapter.resized.get((name, command["op_mod"]))) is not None:
            role, read = moved
            found, ring = read(mailbox), self.known.get((function, role, number), Ring())
            slots = 0 if found is None else found.slots
            self._put((function, role, number), ring._replace(slots=slots))

    def _put(self, name: RingName, ring: Ring) -> None:
        if name in self.known or len(self.known) < MOST:
            self.known[name] = ring

    def _add(self, function: str, role: Role, number: int) -> None:
        """One more entry was written; without the beginning of the ring its index is not known."""
        name = function, role, number
        ring = self.known.get(name)
        if ring is not None and ring.producer is not None:
            self.known[name] = ring._replace(producer=(ring.producer + 1) & COUNTER)

    def _armed(self, function: str, event: Event) -> None:
        adapter = adapter_of(event.device)
        role, number = adapter.written(event)
        entries = _ARMS.get(role)
        if entries is None:
            return
        index, name = adapter.consumed(event), (function, entries, number)
        if index is not None:
            self._put(name, self.known.get(name, Ring())._replace(consumer=index))

    def _fetched(self, function: str, event: Event) -> None:
        """A send entry was fetched or taken from a BlueFlame page; `work` has its index."""
        if not event.work:
            return
        index, name = event.work & INDEX_MASK, (function, Role.WQE, event.obj)
        stride = self._strides.get((function, event.obj), 0)
        end = index + (max(1, -(-event.length // stride)) if stride else 1)
        ring = self.known.get(name, Ring())
        self._put(name, ring._replace(producer=max(end, ring.producer or 0), last=index))

    def _recorded(self, function: str, event: Event) -> None:
        """A doorbell record was read: that of a completion queue lies where its context says."""
        value = int.from_bytes(event.data[:4], "big")
        name = function, Role.CQE, event.obj
        ring = self.known.get(name)
        if ring is not None and ring.record in (None, event.address):
            self.known[name] = ring._replace(consumer=value & COUNTER)
            return
        name = function, Role.RECEIVE_WQE, event.obj
        ring = self.known.get(name, Ring())
        self._put(name, ring._replace(producer=value & LOW, consumer=ring.consumer or 0))

    def _completed(self, function: str, event: Event) -> None:
        adapter = adapter_of(event.device)
        done = adapter.completed(event.data)
        if done is not None:
            self._sent(function, done.qpn, done.slot)
            self._complete(function, done.qpn, "sends", event.obj)
            return
        done = adapter.received(event.data)
        if done is None:
            return
        self._complete(function, done.qpn, "receives", event.obj)
        name = function, Role.RECEIVE_WQE, done.qpn
        ring = self.known.get(name)
        if ring is not None and ring.producer is not None:  # else it is of a shared receive queue
            self.known[name] = ring._replace(consumer=(done.slot + 1) & LOW)

    def _complete(self, function: str, qpn: int, side: str, cqn: int) -> None:
        known = self.completes.get((function, qpn), Completes())
        if (known.sends if side == "sends" else known.receives) == cqn:
            return
        if (function, qpn) in self.completes or len(self.completes) < MOST:
            self.completes[function, qpn] = known._replace(**{side: cqn})

    def _sent(self, function: str, qpn: int, slot: int) -> None:
        """A send entry is done, and with it all slots up to the next entry."""
        name = function, Role.WQE, qpn
        ring = self.known.get(name)
        if ring is None or ring.producer is None:
            return
        consumer = ring.producer
        if ring.last is None or (ring.last ^ slot) & LOW:
            consumer -= (consumer - (slot + 1)) & LOW
        self.known[name] = ring._replace(consumer=max(0, consumer))


class Taken(NamedTuple):
    """A transition of a queue pair, and the event that shows it for the last time."""

    source: str
    target: str
    event: int


class Pair(NamedTuple):
    """A queue pair at a moment; `event` is the one since which it has been in its state.

    `state` is empty until the log shows it. `taken` are its transitions since. `frames`: it is no
    queue pair but a queue of frames.
    """

    state: str = ""
    event: int = 0
    taken: tuple[Taken, ...] = ()
    context: PairContext | None = None
    frames: bool = False


class Queues:
    """The queue pairs of all functions after the events that were fed."""

    def __init__(self, pairs: dict[Queue, Pair] | None = None) -> None:
        self.pairs = pairs or {}
        self.rings = Rings()
        self.devices: dict[str, str] = {}
        """Names of devices that know their card, by function."""
        self._mailboxes: dict[str, tuple[int, bytes]] = {}
        """Opcode and beginning of the mailbox of the command under way, by device."""

    def copy(self) -> Queues:
        """Return the queues as they are now, which further events do not change."""
        found = Queues(dict(self.pairs))
        found.rings = self.rings.copy()
        found.devices, found._mailboxes = dict(self.devices), dict(self._mailboxes)
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
            self._mailbox(event)
        else:
            if what is What.CQE:
                self._completed(event)
            elif what is What.EQE:
                found = adapter_of(event.device).event(event.data)
                if found.kind is EventKind.FAULT and found.number is not None:
                    self._fail(event, found.number, send=False)
            self.rings.feed(event)

    def _mailbox(self, event: Event) -> None:
        """Keep the mailbox of a command until it is carried out, of a chain the first one."""
        if self._mailboxes.get(event.device, _NO_MAILBOX)[0] != event.obj:
            self._mailboxes[event.device] = event.obj, event.data

    def _command(self, event: Event) -> None:
        _, mailbox = self._mailboxes.pop(event.device, _NO_MAILBOX)
        command = event.values
        if command["status"] != OK:
            return
        adapter = adapter_of(event.device)
        name, first = command["name"], adapter.states[0]
        known = adapter.transitions.get(name)
        queue = function_of(event.device), number_of(command) & QPN_MASK
        self.devices[queue[0]] = event.device
        pair = self.pairs.get(queue, _UNKNOWN)
        if known is None:
            self.rings.commanded(event, command, mailbox)
            if name == adapter.described:  # a queue pair is made, maybe with a number of old
                self._move(queue, Pair(context=adapter.context(mailbox)), "", first, event.number)
            elif adapter.frame_states is not None:
                self._change_frames(adapter.frame_states, name, queue, mailbox, event.number)
            return
        sources, target = known
        source = pair.state or (sources[0] if len(sources) == 1 else "")
        if source == first and target != source:
            context = adapter.context(mailbox) if name == adapter.described else pair.context
            pair = Pair(source, context=context)
            self.rings.pair_made(*queue, pair.context)
        self._move(queue, pair, source, target, event.number)

    def _change_frames(
        self, frames: FrameStates, name: str, queue: Queue, mailbox: bytes, number: int
    ) -> None:
        """Take a command that was carried out if it makes, changes or destroys one of these."""
        known = self.pairs.get(queue, _UNKNOWN)
        pair = known if known.frames and name not in frames.made else Pair(frames=True)
        if name in frames.changed:
            target = frames.changed[name](mailbox)
        else:
            target = frames.states[0] if name in (*frames.made, *frames.gone) else None
        if target is not None:
            self._move(queue, pair, pair.state, target, number)

    def _completed(self, event: Event) -> None:
        """A send that failed closes its queue pair, or its send queue."""
        adapter = adapter_of(event.device)
        if adapter.failure(event.data) is None:
            return
        done = adapter.completed(event.data)
        if done is not None:
            self._fail(event, done.qpn, send=True)

    def _fail(self, event: Event, qpn: int, *, send: bool) -> None:
        adapter = adapter_of(event.device)
        queue = function_of(event.device), qpn
        pair = self.pairs.get(queue, _UNKNOWN)
        flushes = send and pair.context is not None and pair.context.flushes
        target, failures = adapter.flushing if flushes else adapter.failed, adapter.failures
        if pair.frames and adapter.frame_states is not None:
            target, failures = adapter.frame_states.failed, adapter.frame_states.edges
        if pair.state and (pair.state, target) in failures:
            self._move(queue, pair, pair.state, target, event.number)

    def _move(self, queue: Queue, pair: Pair, source: str, target: str, number: int) -> None:
        if source == target:
            return
        taken = pair.taken
        if source:
            others = [each for each in taken if each[:2] != (source, target)]
            taken = (*others, Taken(source, target, number))
        if queue in self.pairs or len(self.pairs) < MOST:
            self.pairs[queue] = pair._replace(state=target, event=number, taken=taken)

    def _reset(self, event: Event) -> None:
        function, first = function_of(event.device), adapter_of(event.device).states[0]
        for queue, pair in list(self.pairs.items()):
            if queue[0] == function:
                self._move(queue, pair, pair.state, first, event.number)


_UNKNOWN = Pair()
