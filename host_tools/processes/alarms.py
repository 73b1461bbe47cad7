"""Alarms during a wait, such as the end of QEMU, and actions side by side that alarm each other."""

from __future__ import annotations

import threading
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


class SideBySide:
    """Runs actions in threads; each should have `trouble` among the alarms of its waits."""

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._trouble: LabError | None = None

    def trouble(self) -> LabError | None:
        """Return the alarm that another action has failed; None if none has."""
        return self._trouble

    def run(self, actions: Sequence[Callable[[], object]]) -> None:
        """Run `actions` at the same time, the last in this thread. Raises the first failure.

        Failures of an earlier run are forgotten: a guest may be restarted after a vain attempt.
        """
        self._failure = self._trouble = None
        threads = [
            threading.Thread(target=self._guarded, args=(action,)) for action in actions[:-1]
        ]
        for thread in threads:
            thread.start()
        try:
            self._guarded(actions[-1])
        except BaseException:  # Ctrl-C: the threads must end before their guests do
            self._trouble = self._trouble or LabError("stopped")
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if self._failure is None:
                self._failure = error
                self._trouble = LabError(f"the other side failed: {error}")
