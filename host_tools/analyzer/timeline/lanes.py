"""Lanes of a track: slices that overlap are drawn on different ones.

Perfetto's format demands that the slices of one track nest: one that begins within another ends
within it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_LANES: Final = 64
"""Lanes of a track; what overlaps as many slices is drawn without duration."""


class Lanes:
    """The lanes of one track; `new` makes the track of another lane and returns its number."""

    def __init__(self, new: Callable[[], int]) -> None:
        self._new = new
        self._tracks: list[int] = []
        self._ends: list[int] = []

    def take(self, begin: int, end: int) -> int | None:
        """The track of a lane that is free from `begin` on, taken until `end`; None if all are."""
        for place, taken in enumerate(self._ends):
            if taken <= begin:
                self._ends[place] = end
                return self._tracks[place]
        if len(self._tracks) == MOST_LANES:
            return None
        self._tracks.append(self._new())
        self._ends.append(end)
        return self._tracks[-1]
