"""Steps of software on functions, one after the other, as bytes: any bytes are such steps.

A step is a byte, whose lower half is its kind and whose upper half the function, then the numbers
of its kind, little-endian, then for some kinds two bytes of length and so many bytes of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

CORPUS = Path(__file__).with_name("corpus")
"""A folder of inputs for each target."""
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


LONGEST_DATA = 0xFFFF


@dataclass(frozen=True, slots=True)
class Form:
    """The numbers of a kind of step, by their bytes, and whether data follow."""

    widths: tuple[int, ...] = ()
    data: bool = False


Forms = Mapping[int, Form]
"""By kind: 16 at most, without a gap from 0 on."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of them."""

    kind: int
    function: int
    numbers: tuple[int, ...] = ()
    data: bytes = b""


def decode(forms: Forms, left: BytesLeft) -> Iterator[Step]:
    """Steps until nothing is left; a kind that does not exist is one that does."""
    while left:
        first = left.number(1)
        kind = (first & 15) % len(forms)
        form = forms[kind]
        numbers = tuple(left.number(width) for width in form.widths)
        data = left.take(left.number(2)) if form.data else b""
        yield Step(kind, first >> 4, numbers, data)


def encode(forms: Forms, step: Step) -> bytes:
    """The bytes of a step; numbers are cut to their width."""
    form = forms[step.kind]
    raw = bytes((step.kind | (step.function & 15) << 4,))
    for width, number in zip(form.widths, step.numbers, strict=True):
        raw += (number & (1 << 8 * width) - 1).to_bytes(width, "little")
    if form.data:
        data = step.data[:LONGEST_DATA]
        raw += len(data).to_bytes(2, "little") + data
    return raw
