"""The check that a device is still present, made every second so that every wait ends.

A register of a device that is gone (surprise removal, or the end of the process that emulates it)
reads as all ones. The register read here is the catastrophic error buffer, as in Linux's
core/catas.c: poll_catas, which treats all ones as a catastrophe, too.
"""

from __future__ import annotations

import time

from bluebridge.device.layout.mlx4.bar0 import CATAS_OFFSET
from bluebridge.guest.drivers.bus.interface import Bus
from bluebridge.guest.verbs.errors import DeviceLost
from bluebridge.guest.verbs.interface import HEALTH_SECONDS

ALL_ONES = 0xFFFFFFFF


class HcaHealth:
    """The state of one device; `check` may be called from any thread."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._name = name
        self._where = (0, CATAS_OFFSET)
        self._due = 0.0
        self._reason = ""

    @property
    def lost(self) -> bool:
        """True once the device was found absent or broken, until it is opened anew."""
        return bool(self._reason)

    def watch(self, bar: int, offset: int) -> None:
        """Check the catastrophic error buffer at `offset` of BAR `bar` from now on (QUERY_FW)."""
        self._where = (bar, offset)

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost.

        It reads one register, at most twice every `HEALTH_SECONDS`.
        """
        now = time.monotonic()
        if not self._reason:
            if now < self._due:
                return
            self._due = now + HEALTH_SECONDS / 2
            word = self._bus.read32(*self._where)
            if not word:
                return
            if word != ALL_ONES:
                self._reason = f"the device reports the internal error {word:#010x}"
        raise self.loss()

    def loss(self) -> DeviceLost:
        """Return the error for a lost device, to raise or to report.

        A caller that has read all ones where no register can hold them calls it directly.
        """
        if not self._reason:
            self._reason = "the device is gone (reads return all ones)"
            self._bus.abandon()
        return DeviceLost(f"{self._name}: {self._reason}")
