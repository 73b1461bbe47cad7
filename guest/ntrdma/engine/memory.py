"""Memory that the peer stores into: index words, rings of entries, virtual doorbells.

Ring indices run from 0 to twice the capacity, so that full and empty differ; `index % capacity` is
the entry's position. (NTRDMA v0.1, ntrdma_ring.h.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bluebridge.device.layout.ntrdma.port import DOORBELLS, FIRST_DYNAMIC_BELL
from bluebridge.device.layout.ntrdma.work import WorkCode
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.values import Sge

PAGE = 4096
WORD_BYTES = 64
"""The bytes reserved for an index word, so that each has a cache line of its own."""
_PER_PAGE = PAGE // WORD_BYTES

SEND = struct.Struct("<QHHIIIQII")
RECV = struct.Struct("<QHHI")
PIECE = struct.Struct("<QII")
COMPLETION = struct.Struct("<QHHII4x")
SEGMENT = struct.Struct("<QQ")
SOLICITED = 1 << 63
IMMEDIATE = (WorkCode.SEND_IMMEDIATE, WorkCode.WRITE_IMMEDIATE)
"""The operations whose immediate crosses in network order, as version 0.1 copies it."""


def advanced(index: int, count: int, capacity: int) -> int:
    """Return the index that lies `count` entries after `index`."""
    return (index + count) % (2 * capacity)


def distance(start: int, end: int, capacity: int) -> int:
    """Return the number of entries from `start` up to `end`."""
    return (end - start) % (2 * capacity)


def valid(consumer: int, producer: int, capacity: int) -> bool:
    """Return True if the producer's index is possible: between the consumer's and a lap ahead."""
    return producer < 2 * capacity and distance(consumer, producer, capacity) <= capacity


def runs(index: int, count: int, capacity: int) -> Iterator[tuple[int, int]]:
    """Yield position and number of neighbouring entries, for `count` entries from `index` on."""
    while count:
        position = index % capacity
        part = min(count, capacity - position)
        yield position, part
        index, count = advanced(index, part, capacity), count - part


class Word:
    """A 32-bit word that the peer stores, at bus address `address`."""

    __slots__ = ("_place", "_words", "address", "number")

    def __init__(self, words: memoryview, address: int, place: int, number: int) -> None:
        self._words = words
        self._place = place
        self.address = address
        self.number = number

    def get(self) -> int:
        """Load the value of the word."""
        value: int = self._words[self._place]
        return value

    def set(self, value: int) -> None:
        """Store the value from this side, while the peer does not."""
        self._words[self._place] = value


class Words:
    """Pages of memory for index words, which are given out one by one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pages: list[tuple[DmaMemory, memoryview]] = []
        self.unused: list[int] = []

    def allocate(self) -> Word:
        """Give out a word, which is 0. Raises `MemoryError`."""
        if not self.unused:
            memory = self._transport.map(PAGE)
            first = len(self._pages) * _PER_PAGE
            self._pages.append((memory, memory.view.cast("I")))
            self.unused = list(range(first, first + _PER_PAGE))
        number = self.unused.pop(0)
        page, slot = divmod(number, _PER_PAGE)
        memory, words = self._pages[page]
        word = Word(words, memory.address + slot * WORD_BYTES, slot * WORD_BYTES // 4, number)
        word.set(0)
        return word

    def free(self, word: Word) -> None:
        """Take a word back."""
        self.unused.append(word.number)

    def close(self) -> None:
        """Free the pages."""
        for memory, words in self._pages:
            words.release()
            memory.free()
        self._pages, self.unused = [], []


class Ring:
    """A ring of `capacity` entries of `size` bytes in own memory."""

    def __init__(self, transport: Transport, capacity: int, size: int) -> None:
        self.capacity = capacity
        self.size = size
        self._transport = transport
        self._memory = transport.map(max(64, capacity * size), 64)
        self.address = self._memory.address
        self.view = self._memory.view

    def entry(self, index: int) -> bytes:
        """Return a copy of the entry at an index: the peer may change it at any time."""
        start = index % self.capacity * self.size
        return bytes(self.view[start : start + self.size])

    def put(self, index: int, data: bytes | bytearray) -> None:
        """Store an entry, or its beginning."""
        start = index % self.capacity * self.size
        self.view[start : start + len(data)] = data

    def push(self, target: int, index: int, count: int) -> None:
        """Copy `count` entries from `index` on to the ring of the peer that begins at `target`."""
        for position, part in runs(index, count, self.capacity):
            offset = position * self.size
            self._transport.copy(self.address + offset, target + offset, part * self.size)

    def free(self) -> None:
        """Free the ring's memory."""
        self._memory.free()


def rings(transport: Transport, *shapes: tuple[int, int]) -> list[Ring]:
    """Make a ring for each capacity and size: all of them, or none. Raises `MemoryError`."""
    made: list[Ring] = []
    try:
        for capacity, size in shapes:
            made.append(Ring(transport, capacity, size))
    except MemoryError:
        for ring in made:
            ring.free()
        raise
    return made


class Bells:
    """The array of bells, of which those are looked at that somebody observes, by number."""

    def __init__(self, transport: Transport) -> None:
        self.memory = transport.map(4 * DOORBELLS)
        self.address = self.memory.address
        self.words = self.memory.view.cast("I")
        self._seen: dict[int, int] = {}
        self.last = bytes(4 * DOORBELLS)
        self.span = 0
        """The bytes of the array that are looked at."""

    def observe(self, index: int | None = None) -> int:
        """Look at a bell, by default a free one, from now on; returns it. Raises `MemoryError`."""
        if index is None:
            places = range(FIRST_DYNAMIC_BELL, DOORBELLS)
            index = next((n for n in places if n not in self._seen), None)
            if index is None:
                raise MemoryError("no virtual doorbell is left")
        self._seen[index] = self.words[index]
        self.span = 4 * (max(self._seen) + 1)
        return index

    def forget(self, index: int) -> None:
        """Look at a bell no longer."""
        del self._seen[index]
        self.span = 4 * (max(self._seen, default=-1) + 1)

    @property
    def rung(self) -> bool:
        """Return True if any bell has rung since the last `take`."""
        return bytes(self.memory.view[: self.span]) != self.last

    def take(self) -> list[int]:
        """Return the bells that have rung, each by one load: a later ring counts again.

        A ring that comes while they are answered is found by the next call.
        """
        self.last = bytes(self.memory.view[: self.span])
        # The bell of commands is loaded last: whoever sees a send sees the commands before it.
        return [index for index in reversed(self._seen) if self._fires(index)]

    def _fires(self, index: int) -> bool:
        rung: int = self.words[index]
        if rung == self._seen[index]:
            return False
        self._seen[index] = rung
        return True

    def restart(self) -> None:
        """Set all bells to 0 for a peer that begins anew."""
        self.memory.view[:] = bytes(len(self.memory.view))
        self.last = b""
        for index in self._seen:
            self._seen[index] = 0

    def close(self) -> None:
        """Free the array."""
        self.words.release()
        self.memory.free()


def network_order(immediate: int) -> int:
    """Return an immediate as the number that its bytes in network order are here, or back."""
    return int.from_bytes((immediate & 0xFFFFFFFF).to_bytes(4, "big"), "little")


def send_size(pieces: int) -> int:
    """Return the bytes of a send entry with room for so many pieces."""
    return SEND.size + PIECE.size * pieces


def recv_size(pieces: int) -> int:
    """Return the bytes of a receive entry with room for so many pieces."""
    return RECV.size + PIECE.size * pieces


class SendEntry(NamedTuple):
    """A send as it crosses the bridge; only reads have `pieces`, which are their destination."""

    handle: int
    op: int
    status: int
    recv_key: int
    rdma_key: int
    rdma_length: int
    rdma_address: int
    immediate: int
    pieces: Sequence[Sge]

    def pack(self) -> bytes:
        """Return the entry's bytes."""
        pieces = self.pieces
        head = SEND.pack(*self[:8], len(pieces))
        return head + b"".join([PIECE.pack(*piece) for piece in pieces]) if pieces else head

    @classmethod
    def unpack(cls, data: bytes, most_pieces: int) -> SendEntry | None:
        """Unpack an entry; None when it has more pieces than there is room for."""
        words = SEND.unpack_from(data)
        count: int = words[8]
        if count > most_pieces:
            return None
        return cls._make((*words[:8], unpack_pieces(data, SEND.size, count)))


def pack_receive(pieces: Sequence[Sge]) -> bytes:
    """Pack a receive entry."""
    return RECV.pack(0, 0, 0, len(pieces)) + b"".join(PIECE.pack(*piece) for piece in pieces)


def unpack_receive(data: bytes, most_pieces: int) -> list[Sge] | None:
    """Return the pieces of a receive entry; None when they are more than there is room for."""
    count: int = RECV.unpack_from(data)[3]
    return None if count > most_pieces else unpack_pieces(data, RECV.size, count)


def unpack_pieces(data: bytes, offset: int, count: int) -> list[Sge]:
    """Unpack `count` pieces from `offset` on."""
    end = offset + count * PIECE.size
    return [Sge(*PIECE.unpack_from(data, at)) for at in range(offset, end, PIECE.size)]
