"""The times of a path: its heartbeat, as in the kernel's rtrs.c (hb_work), and its alarms."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.net.rtrs import ImmediateType, immediate

MESSAGE: Final = immediate(ImmediateType.HB_MSG, 0)
ACKNOWLEDGEMENT: Final = immediate(ImmediateType.HB_ACK, 0)


class Beat(IntEnum):
    """The outcomes of a heartbeat's interval: send one, wait for an answer, or the peer is dead."""

    SEND = 0
    WAIT = 1
    """The last heartbeat is not answered yet."""
    DEAD = 2


class Heartbeat:
    """The kernel's count of misses: intervals in which nothing came from the peer.

    With 5 misses allowed, the peer is dead 6 intervals after the first heartbeat without answer.
    """

    def __init__(self, missed_max: int) -> None:
        self._missed_max = missed_max
        self._missed = 0
        self._sent_at = 0.0
        self.latency = 0.0
        """The round trip of the last heartbeat that was acknowledged, in seconds."""

    def heard(self) -> None:
        """Note that something came from the peer."""
        self._missed = 0

    def acknowledged(self, now: float) -> None:
        """Note that the last heartbeat is answered."""
        self.latency = now - self._sent_at

    def interval(self, now: float) -> Beat:
        """Return what is due now that an interval is over."""
        if self._missed > self._missed_max:
            return Beat.DEAD
        self._missed += 1
        if self._missed > 1:
            return Beat.WAIT
        self._sent_at = now
        return Beat.SEND


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
