"""The rules by which firmware commands are carried out, and what their handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bluebridge.device.layout.mlx5.commands import INLINE_BYTES, INPUT, OUTPUT
from bluebridge.device.mlx5.adapter import Adapter, Stage

Handler = Callable[[Adapter, bytes], bytes | Iterator[bytes] | None]
"""Carries a command out by its whole input, headed by `INPUT`, and returns its output, if any.

The output begins with `OUTPUT`, whose status and syndrome are filled in by the command queue; it
is cut or filled with zeros to the length that software wants. None is all zeros. An
iterator does the work in portions, between which others have their turns; the last value that it
yields is the output. Raises `bluebridge.device.mlx5.settings.refused.Refused`.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """The handler of commands with one opcode, and when it may run.

    `least` is the number of bytes that its input has at least; a shorter one is refused. `needs`
    is how far software must have come with the adapter. `brief` ones are a single record of the log
    if their input has one mailbox at most: drivers make thousands of keys in a row.
    """

    handler: Handler
    least: int = INLINE_BYTES
    needs: Stage = Stage.INITIALISED
    brief: bool = False


def number_of(data: bytes) -> int:
    """Return the number of the object at its usual place in an input."""
    return INPUT.get(data, "number")


def numbered(number: int) -> bytes:
    """Return an output with the number of an object at its usual place."""
    return bytes(OUTPUT.pack(number=number))


def nothing(_adapter: Adapter, _data: bytes) -> None:
    """Succeed without effect and output."""
