"""The times at which an engine's paths want to be called."""

from __future__ import annotations

from enum import IntEnum


class Alarm(IntEnum):
    """The two alarms that a path can set."""

    STATE = 0
    """The alarm for a time limit or a pause of the state that the path is in."""
    HEARTBEAT = 1


class Alarms:
    """The times of alarms by path number and kind; `next` is the earliest."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, Alarm], float] = {}
        self.next: float | None = None

    def set(self, path: int, kind: Alarm, time: float) -> None:
        """Set an alarm to `time`, in place of the time that was set before."""
        self._times[path, kind] = time
        self._find_next()

    def cancel(self, path: int) -> None:
        """Clear both alarms of this path."""
        self._times.pop((path, Alarm.STATE), None)
        self._times.pop((path, Alarm.HEARTBEAT), None)
        self._find_next()

    def due(self, now: float) -> list[tuple[int, Alarm]]:
        """Return and clear the alarms whose time has come, earliest first."""
        if self.next is None or now < self.next:
            return []
        found = sorted((time, key) for key, time in self._times.items() if time <= now)
        for _time, key in found:
            del self._times[key]
        self._find_next()
        return [key for _time, key in found]

    def _find_next(self) -> None:
        self.next = min(self._times.values(), default=None)
