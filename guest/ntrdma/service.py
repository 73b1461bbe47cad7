"""Runs an engine on a back end: one thread sleeps until something happens, callers help."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.errors import DeviceError, DeviceLost, VerbsError
from bluebridge.guest.ntrdma.engine.engine import Engine
from bluebridge.guest.ntrdma.engine.transport import CmArrived, Event, Happened, Notify, Operation
from bluebridge.guest.ntrdma.interface import Interface
from bluebridge.guest.ntrdma.transports.back_end import BackEnd

ANSWER_SECONDS = 20.0
"""The time that a verb waits for the peer; the engine gives up sooner."""
REST_SECONDS = 0.02
"""The time that the thread leaves the peer to somebody who polls, at first; it doubles."""
MOST_REST_SECONDS = 0.08
_THROTTLE_SECONDS = 0.0002
MOST_EVENTS = 1024
_clock = time.monotonic
Started = TypeVar("Started", bound=Operation)


class Health:
    """Whether the device is there; its peer may come and go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reason = ""

    @property
    def lost(self) -> bool:
        return bool(self._reason)

    def lose(self, reason: str) -> None:
        """Note that the device is gone, for this reason."""
        self._reason = self._reason or reason

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost."""
        if self._reason:
            raise self.loss()

    def loss(self) -> DeviceLost:
        return DeviceLost(f"{self._name}: {self._reason}")


class Correspondent(Protocol):
    """Whoever takes the messages of the peer's connection manager; both calls under the lock."""

    def came(self, mad: bytes, sender: bytes) -> None:
        """Take a message, as in `CmArrived`."""

    def peer_lost(self) -> None:
        """Note that the peer is lost, and with it all that waits for it."""


class Service:
    """An engine with the lock that guards it.

    Frames of `network` cross as well; it is closed with the service.
    """

    def __init__(
        self,
        back_end: BackEnd,
        name: str,
        watchers: Sequence[Callable[[PortState], None]] = (),
        network: Interface | None = None,
    ) -> None:
        """`watchers` are told each state of the port, from the first on, under the lock."""
        self.lock = threading.RLock()
        self.health = Health(name)
        self.watchers = watchers
        self.events: deque[tuple[Event, int]] = deque(maxlen=MOST_EVENTS)
        """Port up and down, queue pairs that failed with their number, oldest first; the last."""
        self.notified: dict[int, Callable[[], None]] = {}
        """The receivers of the events of completion queues, by the queues' numbers."""
        self.correspondent: Correspondent | None = None
        self.addresses: set[bytes] = set()
        """The GIDs of own IP addresses."""
        self.back_end = back_end
        self.network = network
        self.engine = Engine(back_end, self, network)
        if network is not None:
            network.attach(self.engine.ethernet)
        self._changed = threading.Condition(self.lock)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._polled_at = 0.0
        self.rest = 0.0
        """The time that the thread rests since somebody polls; 0 while it waits for the peer."""
        self._callers = 0
        self._wakes_at = 0.0
        """The time at which the thread looks again by itself."""
        self._worker = threading.Thread(target=self._run, name="ntrdma", daemon=True)
        self._worker.start()

    # -- the engine's owner ---------------------------------------------------------------------

    def entered(self, state: PortState) -> None:
        for watcher in tuple(self.watchers):
            watcher(state)

    def has_address(self, gid: bytes) -> bool:
        network = self.network
        return gid in self.addresses or (network is not None and network.port.has_address(gid))

    def tell(self) -> None:
        """Carry out what the engine gives out; under the lock, after each call into the engine."""
        actions = self.engine.actions
        while actions:
            action = actions.popleft()
            if isinstance(action, Notify):
                if action.cqn in self.notified:
                    self.notified[action.cqn]()
            elif isinstance(action, Happened):
                self.events.append((action.event, action.key))
                if action.event is Event.PORT_DOWN and self.correspondent is not None:
                    self.correspondent.peer_lost()
            elif isinstance(action, CmArrived) and self.correspondent is not None:
                self.correspondent.came(action.mad, action.sender)

    # -- for callers ----------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out what was posted; under the lock. Answers of the peer may come on the way."""
        now = _clock()
        self.engine.run(now)
        self.tell()
        if self._callers:
            self._changed.notify_all()
        pause = _THROTTLE_SECONDS if self.engine.throttled else self.back_end.pause
        due = min(now + pause, self.engine.deadline)
        if due < self._wakes_at and not self.polled(now):
            self._nudge()

    def progress(self, awaits_event: bool = False) -> bool:
        """Take what has come from the peer; under the lock. Returns False if that was nothing.

        While somebody calls this again and again the thread stays out of his way, unless he
        `awaits_event`, which the thread has to bring.
        """
        now = _clock()
        if not awaits_event:
            self._polled_at = now
        if self.back_end.seen_in_memory:
            if self._idle:
                return False
            self.engine.run(now)
            self.tell()
        else:
            self._serve()
        if self._callers:
            self._changed.notify_all()
        return True

    @property
    def polls(self) -> bool:
        """Whether somebody has polled just now, and will again."""
        return self.polled(_clock())

    @property
    def _idle(self) -> bool:
        """Whether the engine would find nothing to do, and no stores of this side wait."""
        engine = self.engine
        mine = engine.own.idle and self.back_end.pause > 0.0
        return mine and not engine.theirs.rung and engine.ethernet is None

    def watch(self) -> None:
        """Nobody polls now: the thread is to wait for the peer. Under the lock."""
        self._polled_at = 0.0
        if self.rest:
            self._nudge()

    def call(self, start: Callable[[], Started], what: str) -> Started:
        """Start an operation and wait until the peer has answered; returns the operation.

        Raises `VerbsError` when the peer refuses, `DeviceLost`.
        """
        deadline = _clock() + ANSWER_SECONDS
        with self.lock:
            operation = start()
            self.engine.run(_clock())
            self.tell()
            self._callers += 1
            try:
                while operation.good is None:
                    self.health.check()
                    if self._closing or _clock() > deadline:
                        raise VerbsError(f"{what}: no answer")
                    self.watch()
                    self._changed.wait(0.5)
            finally:
                self._callers -= 1
        if not operation.good:
            raise VerbsError(f"{what}: the peer refuses")
        return operation

    def wait_ready(self, timeout: float | None) -> bool:
        """Wait until the peer is there; whether it is."""
        with self.lock:
            return (
                self._changed.wait_for(
                    lambda: self.engine.ready or self.health.lost or self._closing, timeout
                )
                and self.engine.ready
                and not self.health.lost
            )

    def close(self) -> None:
        """Part from the peer; a second call does nothing."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
            try:
                self.engine.part(_clock())
                self.back_end.drain()
            except DeviceError as error:
                self.health.lose(str(error))
            self.engine.close()
            self.tell()
            self._changed.notify_all()
        self._nudge()
        self._worker.join()
        try:
            self.back_end.close()
        finally:
            with self.lock:
                os.close(self._wake)
                self._wake = -1
            if self.network is not None:
                self.network.port.close()

    # -- the thread -----------------------------------------------------------------------------

    def _nudge(self) -> None:
        if self._wake >= 0 and threading.current_thread() is not self._worker:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while not self._closing and not self.health.lost:
            with self.lock:
                frames = self.network.wait_for if self.network is not None else []
                waiting = self._plan(_clock())  # after `frames`, which may have to wait for stores
            found = self._sleep(waiting + frames, self._wakes_at)
            readable = any(descriptor in found for descriptor, _ in frames)
            with self.lock:
                now = _clock()
                polled = self.rest and self.polled(now)
                if not polled or readable or self.engine.deadline <= now:
                    if not self._closing:
                        self._serve(readable)
                    self._changed.notify_all()

    def _plan(self, now: float) -> list[tuple[int, int]]:
        """Set how long to sleep; what to wait for meanwhile, which is nothing while it rests.

        Waking up takes the interpreter from whoever polls, so that a rest grows.
        """
        polled = self.polled(now)
        self.rest = min(2 * self.rest, MOST_REST_SECONDS) or REST_SECONDS if polled else 0.0
        if polled:
            self._wakes_at = min(self.engine.deadline, now + self.rest)
            return []
        pause = _THROTTLE_SECONDS if self.engine.throttled else self.back_end.pause
        self._wakes_at = min(self.engine.deadline, now + pause)
        return self.back_end.wait_for

    def polled(self, now: float) -> bool:
        """Whether somebody polls, who then serves the engine himself."""
        return now - self._polled_at < REST_SECONDS

    def _sleep(self, waiting: list[tuple[int, int]], until: float) -> set[int]:
        poller = select.poll()
        for descriptor, events in waiting:
            poller.register(descriptor, events)
        poller.register(self._wake, select.POLLIN)
        seconds = min(max(0.0, until - _clock()), 1.0)
        found = {descriptor for descriptor, _ in poller.poll(seconds * 1000)}
        if self._wake in found:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        return found

    def _serve(self, frames: bool = False) -> None:
        """Take what has come; `frames`: the network has some, which leave with all else."""
        try:
            news = self.back_end.serve(self.engine.port.silent)
            for up in news.links:
                self.engine.link(up, _clock())
            if news.failed:
                self.engine.stores_failed(_clock())
            if news.signalled:
                self.engine.interrupt(_clock())
            if self.network is not None:
                self.network.serve(frames)
            self.engine.advance(_clock())
        except DeviceError as error:
            self.health.lose(str(error))
            with contextlib.suppress(DeviceError):
                self.engine.link(False, _clock())
        self.tell()
