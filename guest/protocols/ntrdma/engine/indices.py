"""Ring indices: they run from 0 to twice the capacity, so that full and empty differ.

`index % capacity` is the entry's position. (NTRDMA v0.1, ntrdma_ring.h.)
"""

from __future__ import annotations

from collections.abc import Iterator


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
