"""Numbers and names in lines about faults: read, or refused with what may stand there."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

MOST_MILLISECONDS: Final = 600_000
MOST_TIMES: Final = 1000
_MOST: Final = {
    "ms": MOST_MILLISECONDS, "times": MOST_TIMES, "address": (1 << 64) - 1, "value": (1 << 64) - 1,
    "key": (1 << 32) - 1, "vendor": 0xFF,
}  # fmt: skip


def named_value(names: type[IntEnum] | type[IntFlag], word: str, text: str) -> int:
    """Return the number of a name; raises `ValueError` with the names that there are."""
    try:
        return int(names[text])
    except KeyError:
        known = ", ".join(names.__members__)
        raise ValueError(f"{word}={text[:40]}: choose from {known}") from None


def number_in(word: str, text: str) -> int:
    """Return a number, which is one for that parameter; raises `ValueError`."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    most = _MOST.get(word, (1 << 24) - 1)
    if not 0 <= number <= most:
        raise ValueError(f"{word}={text[:40]}: write a number from 0 to {most}, or 0x...")
    return number
