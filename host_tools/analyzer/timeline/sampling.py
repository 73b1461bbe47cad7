"""The choice of the events of a long log that a timeline draws one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.host_tools.analyzer.timeline.overview import BLOCK_EVENTS, Block

DEFAULT_LIMIT: Final = 120_000
"""Events that are drawn one by one unless --limit is given."""
STRETCH_BLOCKS: Final = 8
"""Blocks that are chosen together, so that the work requests in them are whole."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive blocks, all of them `drawn` or none."""

    blocks: Sequence[Block]
    drawn: bool

    @property
    def events(self) -> int:
        """Number of events in the stretch."""
        return sum(block.events for block in self.blocks)


def stretches(blocks: Sequence[Block], limit: int) -> list[Stretch]:
    """The log in stretches of which at most about `limit` events are drawn.

    Blocks with more than data traffic come first, up to half of the limit; the rest is spread
    evenly over the log.
    """
    chosen = _chosen(blocks, limit)
    found: list[Stretch] = []
    start = 0
    for place in range(1, len(blocks) + 1):
        if place == len(blocks) or (place in chosen) != (start in chosen):
            found.append(Stretch(blocks[start:place], start in chosen))
            start = place
    return found


def _chosen(blocks: Sequence[Block], limit: int) -> set[int]:
    """Places of the blocks that are drawn."""
    if sum(block.events for block in blocks) <= limit:
        return set(range(len(blocks)))
    room = max(1, limit // BLOCK_EVENTS)
    rare = [place for place, block in enumerate(blocks) if block.rare]
    chosen = set(rare[: max(1, room // 2)])
    rest = [place for place in range(len(blocks)) if place not in chosen]
    room = min(room - len(chosen), len(rest))
    count = -(-room // STRETCH_BLOCKS)
    for number in range(count):
        start = number * len(rest) // count
        size = min(STRETCH_BLOCKS, room)
        chosen.update(rest[start : start + size])
        room -= size
    return chosen
