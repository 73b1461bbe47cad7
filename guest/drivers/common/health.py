"""The check that the device is present and well.

Linux `core/catas.c: poll_catas` of mlx4, `core/health.c: poll_health` of mlx5: a register that
reads as all ones is a catastrophe, too, since a device that is gone (surprise removal, or the end
of the process that emulates it) reads so. It is looked at every second, so that every wait ends.
"""

from __future__ import annotations

import time

from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.errors import DeviceLost, VerbsError
from bluebridge.guest.verbs.interface import HEALTH_SECONDS

ALL_ONES = 0xFFFFFFFF


class HcaError(VerbsError):
    """The device does not answer as a working one does."""


class HcaHealth:
    """The state of one device; `check` may be called from any thread.

    The word of its error buffer at `offset` of BAR `bar` is 0 while it is well.
    """

    def __init__(self, bus: Bus, name: str, bar: int, offset: int) -> None:
        self._bus = bus
        self._name = name
        self._where = (bar, offset)
        self._due = 0.0
        self._reason = ""

    @property
    def lost(self) -> bool:
        """True once the device was found absent or broken, until it is opened anew."""
        return bool(self._reason)

    def watch(self, bar: int, offset: int) -> None:
        """Check the error buffer at `offset` of BAR `bar` from now on."""
        self._where = (bar, offset)

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost.

        It looks at the device at most twice every `HEALTH_SECONDS`.
        """
        now = time.monotonic()
        if not self._reason:
            if now < self._due:
                return
            self._due = now + HEALTH_SECONDS / 2
            word = self._bus.read32(*self._where)
            if word not in (0, ALL_ONES):
                self._reason = f"the device reports the internal error {word:#010x}"
            elif not word:
                self._reason = self._trouble()
                if not self._reason:
                    return
        raise self.loss()

    def _trouble(self) -> str:
        """Return what is wrong with a device that reports no error; empty if nothing is."""
        return ""

    def loss(self) -> DeviceLost:
        """Return the error for a lost device, to raise or to report.

        A caller that has read all ones where no register can hold them calls it directly.
        """
        if not self._reason:
            self._reason = "the device is gone (reads return all ones)"
            self._bus.abandon()
        return DeviceLost(f"{self._name}: {self._reason}")
