"""Forms of completion entries other than the plain one of 32 bytes.

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
    """The form of a queue's completion entries, `size` bytes each."""

    __slots__ = ("_lead", "_timestamps", "size")

    def __init__(self, *, large: bool, timestamps: bool) -> None:
        self.size = 2 * CQE_SIZE if large else CQE_SIZE
        self._lead = bytes(self.size - CQE_SIZE)
        self._timestamps = timestamps

    def of(self, entry: bytearray) -> bytearray:
        """Return the entry as it is stored, made from a plain one."""
        if self._timestamps:
            ticks = clock.now()
            _HIGH.pack_into(entry, TS_HIGH_OFFSET, ticks >> 16)
            _LOW.pack_into(entry, TS_LOW_OFFSET, ticks & 0xFFFF)
        return bytearray(self._lead) + entry if self._lead else entry
