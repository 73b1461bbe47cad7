"""The uses of a bridge's registers, in one set of words for all models.

The log's analyzer and `bluebridge show` use these words, so neither depends on a model.
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
    """The use of one register. `number` is that of its message slot or BAR where it has one."""

    use: Use
    number: int = 0
    bits: int = (1 << 64) - 1
    """Mask of the bits of the register's value that ring doorbells."""
    bit_each: bool = False
    """Whether the register is repeated, with doorbell N as bit 0 of copy N."""


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """The uses that software makes of the registers of one model."""

    registers: Mapping[tuple[str, str], RegisterUse]
    """Uses of registers by the names of block and register."""
    message_names: Mapping[int, str] = field(default_factory=dict)
    """Names of message values."""
    first_message: int = 64
    """Number of message slot 0 in the table of vectors; lower numbers are doorbells."""
    doorbells_per_vector: int = 0
    """Doorbells of each MSI-X vector if the model fixes it; 0 if software chooses vectors."""
    registers_shown: int = 0
    """Bytes of the registers that the peer can access through a window, or 0."""
    config: tuple[tuple[int, int, str], ...] = ()
    """Offset, bytes and name of the model's own registers in config space."""
