"""Runs actions side by side: the first failure ends the waits of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from bluebridge.host_tools.errors import LabError


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
