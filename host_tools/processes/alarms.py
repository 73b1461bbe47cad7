"""Alarms during a wait: the end of the server or of QEMU, the other guest's panic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from bluebridge.host_tools.errors import LabError

Alarm = Callable[[], LabError | None]
"""Says what is wrong, or None; cheap, since a wait looks at it several times a second."""

LOOKS = 500
"""How often `wait_for_cause` looks, in 10 seconds. Looks are counted, not seconds: these pass
as well while the host gives this process no time."""
_PAUSE = 0.02
"""Seconds between two looks."""


def first(alarms: Iterable[Alarm]) -> LabError | None:
    """Return the message of the first alarm that has one; causes stand before their effects."""
    return next((found for alarm in alarms if (found := alarm()) is not None), None)


def wait_for_cause(alarms: Sequence[Alarm], looks: int = LOOKS) -> LabError | None:
    """Why QEMU hung up: looks at `alarms` until one says something; None if none does in time.

    A process closes its sockets a little before its end can be seen.
    """
    found = first(alarms)
    while found is None and alarms and looks > 0:
        time.sleep(_PAUSE)
        found = first(alarms)
        looks -= 1
    return found
