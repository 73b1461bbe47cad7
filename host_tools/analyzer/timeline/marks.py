"""Marks on a track: the beginning and end of a slice, an instant, a value of a counter."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

Argument = tuple[str, int | str]
"""Name and value of an argument of a slice."""


class Shape(IntEnum):
    """Kinds of marks, with the numbers of `TrackEvent.Type` in Perfetto's trace format."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


@dataclass(slots=True)
class Mark:
    """A mark on track `track` at `time`, in nanoseconds since the log began.

    `flows` are numbers of arrows that begin here, `ended` of those that end here; `value` is that
    of a counter.
    """

    time: int
    shape: Shape
    track: int
    name: str = ""
    category: str = ""
    arguments: list[Argument] = field(default_factory=list)
    flows: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    value: int = 0


def nanoseconds(seconds: float) -> int:
    """Convert seconds since the log began to the whole nanoseconds of the trace."""
    return round(seconds * 1e9)
