"""A firmware command under way: its entry, its input, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.layout.mlx5.commands import Delivery, Status

COMPILED_ENTRY: Final = Struct(">B3xIQ16s16xQIBxxB")
"""The table `ENTRY`, compiled, without the output and the signature."""
HEAD: Final = Struct(">H4xH8x")
"""Opcode and modifier of `INPUT`."""


class Undeliverable(Exception):
    """An entry or its mailboxes are not as they must be; the command is not carried out."""

    def __init__(self, delivery: Delivery, reason: str) -> None:
        super().__init__(reason)
        self.delivery = delivery
        self.reason = reason


class Entry(NamedTuple):
    """The fields of an entry that software writes; `owner` is the lowest bit of its byte."""

    type: int
    input_length: int
    input_mailbox: int
    head: bytes
    output_mailbox: int
    output_length: int
    token: int
    owner: int


@dataclass(slots=True, eq=False)
class Execution:
    """A command under way in an entry, since `begin` (in ns), with its whole input."""

    slot: int
    raw: bytes
    entry: Entry
    opcode: int
    begin: int
    events: bool
    """Whether an event queue took events of commands before this one began."""
    brief: bool
    """Whether its transfers have no records of their own."""
    fault: ArmedFault | None = None
    """The fault that lets it fail."""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a command: its delivery status, and what its output says."""

    output: bytes = b""
    status: Status = Status.OK
    delivery: Delivery = Delivery.OK
    reason: str = ""
    syndrome: int = 0
