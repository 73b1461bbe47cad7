"""What may go wrong beside a wait: the server's death, the end of QEMU, the other guest's panic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from host_tools.errors import LabError

Alarm = Callable[[], LabError | None]
"""Says what is wrong, or None; cheap, since a wait looks at it several times a second."""

PATIENCE = 2.0
"""Seconds an alarm has to explain why QEMU hung up."""
_PAUSE = 0.02
"""Seconds between two looks at alarms that are about to say something."""


def first(alarms: Iterable[Alarm]) -> LabError | None:
    """What the first alarm says that says anything; the order is that of blame."""
    return next((found for alarm in alarms if (found := alarm()) is not None), None)


def obituary(alarms: Sequence[Alarm], deadline: float) -> LabError | None:
    """Why QEMU hung up: wait until `deadline` (monotonic) for an alarm that knows.

    A process closes its sockets a little before anybody is told of its end.
    """
    while (found := first(alarms)) is None and alarms and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return found
