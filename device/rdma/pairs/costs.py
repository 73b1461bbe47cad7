"""The cost of work in a send queue's share (`QueuePair.spent`), as bytes that copy in that time.

And how long messages are cut, which would hold the server's loop too long.
"""

from __future__ import annotations

from typing import Final

COST_LIMIT: Final = 64 << 20
"""Bytes of messages after which other work gets its turn, however many doorbells they took."""
MESSAGE_COST: Final = 1 << 16
"""A message, on top of its bytes; a datagram costs it again for each copy a group gets."""

PIECE_COST: Final = 1 << 14
"""A piece of memory that a message is gathered from or scattered to."""

FRAME_COST: Final = 1 << 18
"""An Ethernet frame."""

COPY_COST: Final = 1 << 15
"""An Ethernet frame for each ring that gets it."""

WHOLE_BYTES: Final = 4 << 20
"""Bytes of a message of a connected queue pair that move in one go; longer ones move in parts."""

PART_SECONDS: Final = 0.002
"""Seconds that a part may take: parts are made smaller or larger as their memory demands."""

FIRST_PART_BYTES: Final = WHOLE_BYTES
LEAST_PART_BYTES: Final = 256 << 10
MOST_PART_BYTES: Final = 64 << 20
"""The first part of a message, the smallest and the largest: powers of two, so multiples of every
path MTU."""

MOST_GROWTH: Final = 4
"""A part may be so many times as long as the one before: a measurement may be wrong."""
