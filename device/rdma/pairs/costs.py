"""The cost of work in a send queue's share of time (`QueuePair.spent`).

The unit is the number of bytes that are copied in the same time. The limits by which long
messages are cut, which would hold up the server's loop, are here, too.
"""

from __future__ import annotations

from typing import Final

COST_LIMIT: Final = 64 << 20
"""Cost after which other work gets its turn, however many doorbells the queue had."""
MESSAGE_COST: Final = 1 << 16
"""Cost of a message besides its bytes; each copy of a datagram to a group costs it again."""

PIECE_COST: Final = 1 << 14
"""Cost of each piece of memory that a message is gathered from or scattered to."""

ENTRY_COST: Final = 1 << 10
"""Cost of each entry of a list of pages that a work request gives to a memory key."""

FRAME_COST: Final = 1 << 18
"""Cost of sending an Ethernet frame."""

COPY_COST: Final = 1 << 15
"""Cost of an Ethernet frame for each ring that receives it."""

WHOLE_BYTES: Final = 4 << 20
"""Longest message of a connected queue pair that moves at once; longer ones move in parts."""

PART_SECONDS: Final = 0.002
"""Most seconds that a part should take; the size of parts is adapted to that."""

FIRST_PART_BYTES: Final = WHOLE_BYTES
LEAST_PART_BYTES: Final = 256 << 10
MOST_PART_BYTES: Final = 64 << 20
"""Sizes of the first part of a message, the smallest part and the largest, in bytes: powers of
two, so that they are multiples of every path MTU.
"""

MOST_GROWTH: Final = 4
"""Most times that a part may be as long as the one before, as a measurement may be wrong."""
