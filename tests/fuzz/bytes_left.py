"""The fuzzer's bytes as numbers and strings, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class BytesLeft:
    """Takes values off the front; when nothing is left they are zero or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, length: int) -> bytes:
        """Up to `length` bytes."""
        found = self._data[self._at : self._at + length]
        self._at += length
        return found

    def number(self, length: int) -> int:
        """An unsigned number of `length` bytes."""
        return int.from_bytes(self.take(length), "little")

    def block(self, length: int) -> bytes:
        """`length` bytes, of which the fuzzer gives as many as it wants; zeros follow."""
        return self.take(min(self.number(2), length)).ljust(length, b"\0")

    def choice(self, options: Sequence[_T]) -> _T:
        """One of `options`."""
        return options[self.number(1) % len(options)]
