"""Memory that the peer stores into: index words apart from data, and rings of entries."""

from __future__ import annotations

from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.protocols.ntrdma.engine.indices import runs
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

PAGE = 4096
WORD_BYTES = 64
"""The bytes reserved for an index word, so that each has a cache line of its own."""
_PER_PAGE = PAGE // WORD_BYTES


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
