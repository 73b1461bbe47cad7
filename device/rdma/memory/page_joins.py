"""Joining of a region's adjacent pages into longer pieces, at the speed of whole arrays.

A loop over a million pages takes a third of a second, and others wait for the command meanwhile.
"""

from __future__ import annotations

import sys
from array import array
from itertools import compress
from typing import Final

_WORD: Final = 8
_WORDS_ARE_LITTLE: Final = sys.byteorder == "little"
WORTH_JOINING: Final = 4
"""Pages are joined where at least one in this many continues the page before it."""


def pieces_of(pages: array[int], size: int) -> tuple[array[int], array[int]]:
    """Return two arrays: where pieces begin in a region of these pages, and their addresses.

    `size` is that of a page in bytes; bits of page addresses below it are ignored. `pages` must
    not be empty.
    """
    count = len(pages)
    words = _number(pages) & _repeated(-size & (1 << 64) - 1, count)
    aligned = _array(words, count)
    breaks = _breaks(words, count, size)
    if WORTH_JOINING * breaks.count(0) < count:
        return array("Q", range(0, count * size, size)), aligned
    starts = compress(range(0, count * size, size), breaks)
    return array("Q", starts), array("Q", compress(aligned, breaks))


def _breaks(words: int, count: int, size: int) -> bytes:
    """Return a byte for each page: 0 if it continues the one before."""
    halves, last = words >> 1, count - 1  # room for a carry at the top of each word
    differs = halves + _repeated(size >> 1, last) ^ halves >> 64
    raw = (differs & (1 << 64 * last) - 1).to_bytes(_WORD * last, "little")
    found = 0
    for byte in range(_WORD):
        found |= int.from_bytes(raw[byte::_WORD], "little")
    return b"\1" + found.to_bytes(last, "little")


def _repeated(word: int, count: int) -> int:
    return int.from_bytes(word.to_bytes(_WORD, "little") * count, "little")


def _number(words: array[int]) -> int:
    """Return all words as one number, the first one lowest."""
    raw = array("Q", words)
    if not _WORDS_ARE_LITTLE:
        raw.byteswap()
    return int.from_bytes(raw.tobytes(), "little")


def _array(number: int, count: int) -> array[int]:
    words = array("Q", number.to_bytes(_WORD * count, "little"))
    if not _WORDS_ARE_LITTLE:
        words.byteswap()
    return words
