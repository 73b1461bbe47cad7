"""Completion queues, which look at their sources in turn, and the turns of queue pairs."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from bluebridge.guest.ntrdma.engine.transport import Actions, Notify
from bluebridge.guest.verbs.values import Wc


class Source(Protocol):
    """A queue of work requests whose completions go to a completion queue."""

    def collect(self) -> None:
        """Take over the completions that the peer has stored."""

    def take(self) -> Wc | None:
        """Return the oldest completion that was not polled yet, None if there is none."""

    @property
    def waiting(self) -> bool:
        """Return True if `take` would return a completion."""


class CompletionQueue:
    """Completions of several queues, polled round-robin; its events are among the actions.

    `bell`, its number, is rung by the peer when it has completed sends of these queues.
    """

    def __init__(self, bell: int, actions: Actions) -> None:
        self.bell = bell
        self._actions = actions
        self._sources: deque[Source] = deque()
        self._armed: bool | None = None
        """True if armed for solicited completions only, False for all, None while not armed."""

    def attach(self, source: Source) -> None:
        """Poll the completions of a source, too."""
        if source not in self._sources:
            self._sources.append(source)

    def detach(self, source: Source) -> None:
        """Expect no more completions of `source`."""
        if source in self._sources:
            self._sources.remove(source)

    def collect(self) -> None:
        """Take over the completions that the peer has stored."""
        for source in tuple(self._sources):
            source.collect()

    def poll(self, limit: int) -> list[Wc]:
        """Return up to `limit` completions; each queue's in order, the queues in turn."""
        self.collect()
        found: list[Wc] = []
        fruitless = 0
        while len(found) < limit and fruitless < len(self._sources):
            source = self._sources[0]
            self._sources.rotate(-1)
            completion = source.take()
            if completion is None:
                fruitless += 1
            else:
                fruitless = 0
                found.append(completion)
        return found

    @property
    def armed(self) -> bool:
        """True while an event is asked for and has not come."""
        return self._armed is not None

    def arm(self, solicited_only: bool) -> None:
        """Ask for one event at the next completion; at once when some are waiting."""
        self._armed = solicited_only
        self.collect()
        if any(source.waiting for source in self._sources):
            self._fire()

    def added(self, *, solicited: bool) -> None:
        """Note that one of the queues has a completion more."""
        if self._armed is not None and (solicited or not self._armed):
            self._fire()

    def _fire(self) -> None:
        if self._armed is not None:
            self._armed = None
            self._actions.append(Notify(self.bell))


class Schedule:
    """The queue pairs that may send, those that wait for a time, and those that have failed."""

    def __init__(self) -> None:
        self.runnable: deque[int] = deque()
        self.failed: deque[int] = deque()
        """The queue pairs that found a failure, and are not in the error state yet."""
        self.stalled: dict[int, float] = {}
        """The times at which queue pairs are tried again."""

    def make_runnable(self, key: int) -> None:
        """Note that a queue pair may have something to send."""
        if key not in self.runnable:
            self.runnable.append(key)

    def resume(self, now: float) -> None:
        """Let those go on whose time has come."""
        for key in [key for key, at in self.stalled.items() if at <= now]:
            del self.stalled[key]
            self.make_runnable(key)

    @property
    def deadline(self) -> float:
        """The time at which a queue pair goes on; one in the past if any has failed."""
        if self.failed:
            return 0.0
        return min(self.stalled.values(), default=float("inf"))
