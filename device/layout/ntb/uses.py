"""The uses of a bridge's registers, in one set of words for all models.

The log's analyzer and `bluebridge show` go by these words, so neither knows a model by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Use(Enum):
    """The use of a register."""

    RING = "rings doorbells of the peer"
    PENDING = "doorbells that the peer has rung"
    MASK = "which doorbells interrupt"
    VECTOR = "vector of a doorbell"
    SEND = "message to the peer"
    INBOX = "message of the peer"
    INBOX_STATUS = "whether a message of the peer is new; writing 1 takes it"
    OWN_SCRATCHPAD = "scratchpad"
    PEER_SCRATCHPAD = "scratchpad of the peer"
    WINDOW_LIMIT = "end of a window"
    BAR_BASE = "middle-bus address that a BAR shows"
    SHOWN_AT = "middle-bus address at which the peer sees the registers"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """The use of one register, with the `number` of its message slot or BAR where it has one."""

    use: Use
    number: int = 0
    bits: int = (1 << 64) - 1
    """The bits of its value that ring."""
    bit_each: bool = False
    """Whether copy N of the register has doorbell N as its bit 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """What software does with the registers of one model."""

    registers: Mapping[tuple[str, str], RegisterUse]
    """By the names of block and register."""
    message_names: Mapping[int, str] = field(default_factory=dict)
    """Names of values that messages have."""
    first_message: int = 64
    """Number of message slot 0 in the table of vectors, where doorbells have the numbers below."""
    doorbells_per_vector: int = 0
    """Doorbells of each MSI-X vector where the model fixes it, 0 where software chooses vectors."""
    registers_shown: int = 0
    """Bytes of the registers that the peer sees through a window, 0 for none."""
    config: tuple[tuple[int, int, str], ...] = ()
    """Registers of its own in config space: offset, bytes, name."""
