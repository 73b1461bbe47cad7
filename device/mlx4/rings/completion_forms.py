"""Other forms of completion entries than the plain one of 32 bytes.

With 64-byte entries the second half is what software reads; with timestamps the clock stands where
plain entries have the service level and the sender's address (`inc/cq.h: struct mlx4_ts_cqe`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.mlx4.cqe import CQE_SIZE, TS_HIGH_OFFSET, TS_LOW_OFFSET
from bluebridge.device.mlx4.settings import clock

_HIGH: Final = Struct(">I")
_LOW: Final = Struct(">H")


class CqeForm:
    """How the entries of a queue look; `size` is what one takes in the ring."""

    __slots__ = ("_lead", "_timestamps", "size")

    def __init__(self, *, large: bool, timestamps: bool) -> None:
        self.size = 2 * CQE_SIZE if large else CQE_SIZE
        self._lead = bytes(self.size - CQE_SIZE)
        self._timestamps = timestamps

    def of(self, entry: bytearray) -> bytearray:
        """The entry as it is stored, from a plain one."""
        if self._timestamps:
            ticks = clock.now()
            _HIGH.pack_into(entry, TS_HIGH_OFFSET, ticks >> 16)
            _LOW.pack_into(entry, TS_LOW_OFFSET, ticks & 0xFFFF)
        return bytearray(self._lead) + entry if self._lead else entry
