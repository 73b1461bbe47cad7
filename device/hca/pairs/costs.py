"""What work costs of a send queue's share (`QueuePair.spent`), as bytes that copy in that time."""

from __future__ import annotations

from typing import Final

MESSAGE_COST: Final = 1 << 16
"""A message, on top of its bytes; a datagram costs it again for each copy a group gets."""

PIECE_COST: Final = 1 << 14
"""A piece of memory that a message is gathered from or scattered to."""

FRAME_COST: Final = 1 << 18
"""An Ethernet frame."""

COPY_COST: Final = 1 << 15
"""An Ethernet frame for each ring that gets it."""
