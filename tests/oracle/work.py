"""Requests of software to a queue pair, and the completions that it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bluebridge.device.layout.net.roce import ATOMICS, Op

RETURNING = frozenset((Op.READ, *ATOMICS))
"""Operations whose answer brings data."""
WRITES = frozenset((Op.WRITE, Op.WRITE_IMM))
UNRELIABLE = frozenset((Op.SEND, Op.SEND_IMM, *WRITES))
"""The operations that UC carries."""


class Sge(NamedTuple):
    """A piece of memory; the address is one of the region or window that the key names."""

    key: int
    va: int
    length: int


class Register(NamedTuple):
    """REG_MR: `pages` become visible at `start` under `key`."""

    key: int
    start: int
    length: int
    rights: int
    pages: tuple[int, ...]


class Bind(NamedTuple):
    """BIND_MW of window `key` to `length` bytes at `va` of the region `lkey`."""

    key: int
    lkey: int
    va: int
    length: int
    rights: int
    zero_based: bool
    second_type: bool


class Invalidate(NamedTuple):
    """LOCAL_INV."""

    key: int


Local = Register | Bind | Invalidate


@dataclass(frozen=True)
class Work:
    """A send work request: a message, or what stays in the adapter; `inline` replaces `sges`.

    `operands` of an atomic are swap or add, compare, and the mask of each.
    """

    op: Op | Local
    sges: tuple[Sge, ...] = ()
    inline: bytes | None = None
    remote: int = 0
    rkey: int = 0
    immediate: int = 0
    operands: tuple[int, int, int, int] = (0, 0, 0, 0)
    signalled: bool = True
    fence: bool = False

    @property
    def length(self) -> int:
        """Return the bytes of the message."""
        return sum(sge.length for sge in self.sges) if self.inline is None else len(self.inline)

    @property
    def returns(self) -> bool:
        """Return whether the answer brings data."""
        return self.op in RETURNING


class Completion(NamedTuple):
    """A completion; of one in error only the number of the request and the status count."""

    number: int
    status: int
    op: Op | type[Local] | None = None
    length: int = 0
    immediate: int = 0
    source: int = 0
