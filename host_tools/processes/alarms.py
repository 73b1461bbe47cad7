"""What may go wrong beside a wait: the server's death, the end of QEMU, the other guest's panic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from bluebridge.host_tools.errors import LabError

Alarm = Callable[[], LabError | None]
"""Says what is wrong, or None; cheap, since a wait looks at it several times a second."""

LOOKS = 500
"""How often alarms are looked at that are about to say why QEMU hung up: for 10 seconds. Looks are
counted, since the time passes as well on a host that stands still."""
_PAUSE = 0.02
"""Seconds between two looks."""


def first(alarms: Iterable[Alarm]) -> LabError | None:
    """What the first alarm says that says anything; the order is that of blame."""
    return next((found for alarm in alarms if (found := alarm()) is not None), None)


def obituary(alarms: Sequence[Alarm], looks: int = LOOKS) -> LabError | None:
    """Why QEMU hung up: wait for an alarm that knows, if there are any; None if none does.

    A process closes its sockets a little before anybody is told of its end.
    """
    found = first(alarms)
    while found is None and alarms and looks > 0:
        time.sleep(_PAUSE)
        found = first(alarms)
        looks -= 1
    return found
