"""Counts the events of a transfer that the time model multiplies with a profile's constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bluebridge.host_tools.analyzer.analysis import Role, Tlp, Transaction, Transfer
from bluebridge.host_tools.analyzer.model.profile import Profile, Stores

LINE = 64
BLOCK = 128
FRAMING = 24
"""Bytes that PCIe adds to a write: header 16, link CRC 4, sequence number 2, start and end 2."""

ENTRY_READS = 2
"""Round trips of fetching an entry, for its head and for the rest: figure 4.5 shows both, the
device logs them as one read."""

POSTS = (Role.BLUEFLAME, Role.DOORBELL)
_COMPLETIONS = (Role.CQE, Role.EQE)
_INTERRUPT_BYTES = 4


@dataclass(slots=True)
class EventCounts:
    """How often each constant of a profile counts.

    `base` messages, `store` operations, `write` in writes of 64 bytes, `turn` fetched entries,
    `read` round trips, `completion` entries.
    """

    base: int = 0
    store: int = 0
    write: float = 0.0
    turn: int = 0
    read: int = 0
    completion: int = 0

    def __add__(self, other: EventCounts) -> EventCounts:
        return EventCounts(
            self.base + other.base,
            self.store + other.store,
            self.write + other.write,
            self.turn + other.turn,
            self.read + other.read,
            self.completion + other.completion,
        )

    def time(self, profile: Profile) -> float:
        """Sum up the modelled microseconds of what was counted."""
        us = profile.us
        return (
            self.base * us.base
            + self.store * us.store
            + self.write * us.write
            + self.turn * us.turn
            + self.read * us.read
            + self.completion * us.completion
        )


def link_share(length: int) -> float:
    """Link time of a write of `length` bytes, in units of that of a write of 64."""
    return (-(-length // LINE) * FRAMING + length) / (FRAMING + LINE)


def count(transfer: Transfer, stores: Stores) -> list[EventCounts | None]:
    """The counts of each of `transfer.transactions`; None for one that is not timed."""
    begins = set(_operations(transfer, BLOCK if stores is Stores.BLOCKS else LINE))
    return [_of(each, place in begins) for place, each in enumerate(transfer.transactions)]


def _operations(transfer: Transfer, room: int) -> Iterator[int]:
    """Places of lines that begin a store operation; adjacent lines share one of `room` bytes."""
    end, free = -1, 0
    for place, each in enumerate(transfer.transactions):
        if each.role is not Role.BLUEFLAME:
            continue
        if each.address != end or each.length > free:
            yield place
            free = room
        end = each.address + each.length
        free -= each.length


def _of(each: Transaction, begins: bool) -> EventCounts | None:
    if each.role is Role.BLUEFLAME:
        return EventCounts(store=int(begins), write=link_share(each.length))
    if each.role is Role.WQE:
        return EventCounts(turn=1, read=ENTRY_READS)
    if each.role is Role.REQUEST:
        return EventCounts(base=1)
    if each.role is Role.RESPONSE:
        return EventCounts()  # `base` includes its time
    if each.role in _COMPLETIONS:
        return EventCounts(completion=1)
    if each.role is Role.INTERRUPT:
        return EventCounts(write=link_share(_INTERRUPT_BYTES))
    if each.tlp is Tlp.MEMORY_READ:
        return EventCounts(read=1)
    if each.tlp is Tlp.MEMORY_WRITE:
        return EventCounts(write=link_share(each.length))
    return None
