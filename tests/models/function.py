"""A function of a bridge or a DMA engine that tests reset under whoever drives it."""

from __future__ import annotations

import time

from bluebridge.device.layout import pci as layout
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.connection import CONFIG

FUNCTION_RESET = 0x8000


class WireFunction(SocketBus):
    """A function that can be away: stores are lost then, loads return a byte of the test's."""

    _away_until, _away_byte = 0.0, b""

    def reset_function(self, seconds: float = 0.0, byte: bytes = b"\xff") -> None:
        """Reset the function as Linux does for `echo 1 > reset`, under whoever drives it.

        For so many `seconds` its memory space stays off, and loads return that byte.
        """
        with self._lock:
            self._away_until, self._away_byte = time.monotonic() + seconds, byte
            offset = self.client.read(CONFIG, layout.HEADER.field("capabilities").offset, 1)[0]
            while self.client.read(CONFIG, offset, 1)[0] != layout.CAP_ID_EXPRESS:
                offset = self.client.read(CONFIG, offset + 1, 1)[0]
            where = offset + layout.EXPRESS_CAPABILITY.field("device_control").offset
            self.client.write(CONFIG, where, FUNCTION_RESET.to_bytes(2, "little"))
            self._place()

    def load(self, bar: int, offset: int, width: int) -> int:
        """One load."""
        with self._lock:
            if time.monotonic() < self._away_until:
                return int.from_bytes(self._away_byte * width, "little")
            return super().load(bar, offset, width)

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        """One store, posted as QEMU's are."""
        with self._lock:
            if time.monotonic() >= self._away_until:
                super().store(bar, offset, width, value)
