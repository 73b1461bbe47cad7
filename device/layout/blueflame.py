"""BlueFlame: the head of a send entry that software stores into an adapter of either card."""

from __future__ import annotations

from typing import Final

LINE: Final = 64
"""Entries are stored in whole lines of so many bytes."""
HEAD_BYTES: Final = 8
"""The two words of an entry that say which it is, and how long."""
INDEX_SHIFT: Final = 8
INDEX_MASK: Final = 0xFFFF
"""Bits 23:8 of the first word: the index of the entry."""
QPN_SHIFT: Final = 8
"""Bits 31:8 of the second word: the number of the queue pair."""
SEGMENTS_MASK: Final = 0x3F
"""Bits 5:0 of the second word: the length of the entry in units of 16 bytes."""
