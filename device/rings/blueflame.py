"""BlueFlame: send entries that software stores into an adapter, so that it need not fetch them.

A buffer is half a register; software stores an entry there in ascending order, in whole lines of
64 bytes, after it wrote the same bytes to its ring (rdma-core `providers/mlx4/qp.c:
mlx4_post_send`, `providers/mlx5/qp.c: post_send_db`, Linux `mlx4/en_tx.c:
mlx4_en_tx_write_desc`). Dword 0 then holds the index of the entry too, dword 1 the number of the
queue pair. Whatever is not as it should be is treated as a doorbell: adapters fetch the entry then,
also when the page is not that of the queue pair. The log says why.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from bluebridge.device.layout.blueflame import (
    HEAD_BYTES,
    INDEX_MASK,
    INDEX_SHIFT,
    LINE,
    QPN_SHIFT,
    SEGMENTS_MASK,
)
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import SendQueue
from bluebridge.device.throttle import Throttle

FULL: Final = "it is full"
LAST: Final = LINE - 1
PAGE_BYTES: Final = 4096

HEAD: Final = Struct(">II")
BEHIND: Final = 0x8000
"""Half of the index space: an entry at this distance or more is an older one, not a later one."""

QUIET_SECONDS: Final = 1.0
"""Seconds without a store after which a line is closed; at most twice that.

The time is long, since on a busy host a virtual processor may wait that long to run again.
"""


class Line(NamedTuple):
    """The bytes of one write: `data` at `place`, within one line, closed for the given `reason`."""

    place: int
    data: bytes
    reason: str


class OpenLine:
    """The line that is being gathered, which may be empty; places count from the page's start."""

    def __init__(self) -> None:
        self._place = self._end = 0
        self._data = bytearray()

    def store(self, place: int, data: bytes) -> Sequence[Line]:
        """Take a store, which may begin anywhere in its line; returns the lines that it closes."""
        end = place + len(data)
        if place == self._end and self._data and end <= (place | LAST) + 1:
            self._data += data
            self._end = end
            return (self.close(FULL),) if not end & LAST else ()
        if not self._data and len(data) == LINE and not place & LAST:
            return (Line(place, data, FULL),)  # a whole line at once
        return list(self._split(place, data))

    def _split(self, place: int, data: bytes) -> Iterator[Line]:
        while data:
            room = LINE - (place & LAST)
            part, data = data[:room], data[room:]
            if self._data and place != self._end:
                yield self.close(f"a store at {place:#x} does not follow")
            if not self._data:
                self._place = place
            self._data += part
            self._end = place = place + len(part)
            if not place & LAST:
                yield self.close(FULL)

    def so_far(self) -> bytes:
        """Return the bytes gathered so far."""
        return bytes(self._data)

    def close(self, reason: str) -> Line:
        """Empty the line; returns what was gathered, which may be nothing."""
        line = Line(self._place, bytes(self._data), reason)
        self._data.clear()
        return line


class StoredRing(SendQueue):
    """The send queue of one queue pair as BlueFlame uses it.

    `index` is the free-running one of the entry that is due, `page` the doorbell page that its
    software uses, `what` how the log calls its entries.
    """

    index: int
    page: int
    what: What

    @abstractmethod
    def ring(self) -> None:
        """Take a doorbell: carry out posted entries, now or when their time comes."""

    @abstractmethod
    def accepts(self, word0: int) -> bool:
        """Return True if the entry that begins with this word may be pushed now."""

    @abstractmethod
    def push(self, entry: bytes) -> None:
        """Carry out an entry that software stored whole, and none behind it.

        Entries behind it have stores or a doorbell of their own on their way.
        """


class StoreRegister:
    """The state of one register: an open line, and the entry made of its closed lines."""

    def __init__(self, number: int, page: int) -> None:
        self.number = number
        self.page = page
        self.line = OpenLine()
        self.buffer = 0  # place of the buffer that the entry is in, in the page
        self.entry: bytearray | None = None
        self.idle = False  # no store since the last tick

    def head(self) -> tuple[int, int] | None:
        """Return the first words of the entry that is being stored; None if unknown yet."""
        stored = bytes(self.entry or b"") or self.line.so_far()
        return None if len(stored) < HEAD_BYTES else HEAD.unpack_from(stored)

    def qpn(self) -> int | None:
        """Return the number of the queue pair whose entry is being stored; None if unknown yet."""
        head = self.head()
        return None if head is None else head[1] >> QPN_SHIFT


class BlueFlame:
    """The BlueFlame pages of one adapter; each register collects one entry at a time.

    Software uses a register under a lock (libmlx4 the first of a page, libmlx5 two of each page,
    mlx4_en one for each ring), so stores to several registers may be interleaved, but not those to
    one. `open` are those with an open line or an incomplete entry, by their number counted through
    all pages. Registers have `size` bytes, the first page lies at `base` in its BAR, `find` returns
    the send queue of a number, and `quiet` is `QUIET_SECONDS` or less.
    """

    def __init__(
        self,
        bus: HostBus,
        find: Callable[[int], StoredRing | None],
        *,
        size: int,
        base: int = 0,
        quiet: float = QUIET_SECONDS,
    ) -> None:
        self._bus = bus
        self._find = find
        self._size = size
        self._buffer = size // 2
        self._base = base
        self._quiet = quiet
        self.open: dict[int, StoreRegister] = {}
        self._ticking = False
        self._throttle = Throttle()

    def reset(self) -> None:
        """Forget entries that are incomplete."""
        self.open.clear()

    def write(self, offset: int, data: bytes) -> None:
        """Take a store at `offset` behind the start of the first page."""
        number, room = offset // self._size, self._size - offset % self._size
        if len(data) > room:  # a store across two registers
            self.write(offset, data[:room])
            self.write(offset + room, data[room:])
            return
        register = self._register(number)
        register.idle = False
        for line in register.line.store(offset % PAGE_BYTES, data):
            self._take(register, line)

    def _register(self, number: int) -> StoreRegister:
        register = self.open.get(number)
        if register is None:
            register = self.open[number] = StoreRegister(number, number * self._size // PAGE_BYTES)
            self._watch()
        return register

    def fence(self, page: int, why: str, qpn: int | None = None) -> None:
        """Close a page's open lines as they are, because an access that orders stores happened.

        With `qpn`, only lines of that queue pair are closed, since others come from other
        processors. `why` goes into the log.
        """
        each = PAGE_BYTES // self._size
        for number in range(page * each, page * each + each):
            register = self.open.get(number)
            if register is not None and qpn in (None, register.qpn()):
                self._close(number, register, why)

    def _close(self, number: int, register: StoreRegister, why: str) -> None:
        """Close the line of a register, for whose entry nothing more comes."""
        line = register.line.close(why)
        if line.data:
            self._take(register, line)
        elif register.entry is not None:
            self._give_up(register, f"{why} came before its end")
        self.open.pop(number, None)

    # -- time ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._bus.call_later(self._quiet, self._tick)

    def _tick(self) -> None:
        """Close registers without a store since the last tick; one timer serves all of them."""
        self._ticking = False
        for number, register in list(self.open.items()):
            if register.idle:
                self._close(number, register, "a time-out")
            register.idle = True
        if self.open:
            self._watch()

    # -- entries ------------------------------------------------------------------------------

    def _take(self, register: StoreRegister, line: Line) -> None:
        """Begin an entry with a line that was closed, or continue one."""
        buffer, position = line.place & -self._buffer, line.place & (self._buffer - 1)
        if position == 0:
            if register.entry is not None:
                self._give_up(register, "a new entry begins before its end")
            register.buffer, register.entry = buffer, bytearray()
        if register.entry is None:
            return  # the rest of an entry that was given up
        if register.buffer != buffer or len(register.entry) != position:
            self._give_up(register, f"a line at {line.place:#x} does not follow")
            return
        register.entry += line.data
        self._check_entry(register, line.reason)

    def _check_entry(self, register: StoreRegister, reason: str) -> None:
        """Hand an entry on if it is complete, or give it up if it cannot become so."""
        entry = register.entry
        if entry is None:
            return
        length = (entry[7] & SEGMENTS_MASK) * 16 if len(entry) >= HEAD_BYTES else self._buffer
        if not length or length > self._buffer:
            self._give_up(register, f"an entry of {length} bytes")
        elif len(entry) >= length:
            register.entry = None
            self._push(register.page, register.buffer, bytes(entry[:length]))
        elif reason is not FULL:
            self._give_up(register, f"{reason} after {len(entry)} bytes of the entry")

    def _push(self, number: int, buffer: int, entry: bytes) -> None:
        """Hand an entry to its queue, if it is the one that is due there."""
        word0, word1 = HEAD.unpack_from(entry)
        qpn, index = word1 >> QPN_SHIFT, word0 >> INDEX_SHIFT & INDEX_MASK
        queue = self._find(qpn)
        if queue is None:
            self._lose(number, f"QP {qpn:#x} has no send queue", qpn)
            return
        if queue.page != number:
            self._fetch(queue, entry, number, f"the page of QP {qpn:#x} is {queue.page}")
        elif queue.accepts(word0):
            address = self._base + number * PAGE_BYTES + buffer
            self._bus.concern(qpn, queue.index)
            self._bus.note_dma(Kind.BLUEFLAME, address, len(entry), entry, queue.what, qpn)
            queue.push(entry)
        elif (index - queue.index) & INDEX_MASK >= BEHIND:
            # an earlier doorbell found it in the ring while its stores were on their way
            self._concern(queue, entry)
            self._bus.tell(Fact.BLUEFLAME_KNOWN, page=number, entry=index, qpn=qpn)
            queue.ring()
        else:
            due = queue.index & INDEX_MASK
            why = f"entry {index} comes, {due} is due" if index != due else "the queue is not ready"
            self._fetch(queue, entry, number, why)

    def _give_up(self, register: StoreRegister, reason: str) -> None:
        """Fetch an entry that is not well formed from its ring, if it names that."""
        entry, register.entry = register.entry, None
        if entry is None or len(entry) < HEAD_BYTES:
            self._lose(register.page, reason, 0)
            return
        queue = self._find(HEAD.unpack_from(entry)[1] >> QPN_SHIFT)
        if queue is not None:
            self._fetch(queue, entry, register.page, reason)

    def _fetch(self, queue: StoredRing, entry: bytes | bytearray, number: int, reason: str) -> None:
        qpn = self._concern(queue, entry)
        self._bus.tell(Fact.BLUEFLAME_REFUSED, page=number, reason=reason, qpn=qpn)
        queue.ring()

    def _concern(self, queue: StoredRing, entry: bytes | bytearray) -> int:
        """Attribute what is logged next to the work request of an entry; return its QPN."""
        word0, word1 = HEAD.unpack_from(entry)
        ahead = ((word0 >> INDEX_SHIFT) - queue.index + BEHIND) & INDEX_MASK
        self._bus.concern(word1 >> QPN_SHIFT, queue.index + ahead - BEHIND)
        return int(word1 >> QPN_SHIFT)

    def _lose(self, page: int, reason: str, qpn: int) -> None:
        """Log some of the stores that concern no queue pair: there may be very many."""
        if self._throttle.admits():
            self._bus.tell(
                Fact.BLUEFLAME_LOST, page=page, reason=reason, qpn=qpn, count=self._throttle.count
            )
