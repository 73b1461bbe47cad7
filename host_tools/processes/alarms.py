"""Alarms during a wait, such as the end of the device server, of QEMU or of the other guest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from bluebridge.host_tools.errors import LabError

Alarm = Callable[[], LabError | None]
"""Returns the error when something is wrong, else None.

It must be cheap, since a wait calls it several times a second.
"""

LOOKS = 500
"""The number of looks of `wait_for_cause`, in 10 seconds.

Looks are counted, not seconds: these pass as well while the host gives this process no time.
"""
_PAUSE = 0.02
"""The seconds between two looks."""


def first(alarms: Iterable[Alarm]) -> LabError | None:
    """Return the message of the first alarm that has one; causes stand before their effects."""
    return next((found for alarm in alarms if (found := alarm()) is not None), None)


def wait_for_cause(alarms: Sequence[Alarm], looks: int = LOOKS) -> LabError | None:
    """Return the first error of an alarm, which is why QEMU hung up; None if none comes in time.

    A process closes its sockets a little before its end can be seen.
    """
    found = first(alarms)
    while found is None and alarms and looks > 0:
        time.sleep(_PAUSE)
        found = first(alarms)
        looks -= 1
    return found
