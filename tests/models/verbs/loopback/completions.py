"""Completion queues and completion channels of a loopback device."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable

from bluebridge.guest.verbs import HEALTH_SECONDS, DeviceLost, VerbsError, Wc
from tests.models.verbs.loopback.network import Network


class LoopbackHealth:
    """Whether the device is there: until a test calls `lose`."""

    lost = False

    def lose(self) -> None:
        """From now on the device is gone."""
        self.lost = True

    def check(self) -> None:
        """Raise `DeviceLost` if it is."""
        if self.lost:
            raise self.loss()

    def loss(self) -> DeviceLost:
        """The error to raise."""
        return DeviceLost("loopback0: the device is gone")


class LoopbackChannel:
    """Events in an eventfd that counts them."""

    def __init__(self, network: Network, health: LoopbackHealth) -> None:
        self._lock = network.lock
        self._health = health
        self._events: deque[LoopbackCq | None] = deque()
        """None wakes a waiting thread."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._closed = False

    def fileno(self) -> int:
        """The eventfd."""
        return self._fd

    def put(self, cq: LoopbackCq | None) -> None:
        """An event of `cq`."""
        with self._lock:
            self._events.append(cq)
            os.eventfd_write(self._fd, 1)

    def get_event(self, timeout: float | None = None) -> LoopbackCq | None:
        """The next event; None when it is late, woken or closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if self._events:
                    os.eventfd_read(self._fd)
                    return self._events.popleft()
                if self._closed:
                    return None
            left = HEALTH_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            if not select.select([self._fd], [], [], min(left, HEALTH_SECONDS))[0]:
                self._health.check()

    def wake(self) -> None:
        """Make one `get_event` return None."""
        self.put(None)

    def close(self) -> None:
        """Have waiting threads return; the descriptor lives as long as the object."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.eventfd_write(self._fd, 1)

    def __del__(self) -> None:
        os.close(self._fd)


class LoopbackCq:
    """Completions with what polling each of them gives back to its queue."""

    def __init__(self, network: Network, cqn: int, channel: LoopbackChannel | None) -> None:
        self.cqn = cqn
        self.channel = channel
        self._lock = network.lock
        self._done: deque[tuple[Wc, Callable[[], None]]] = deque()
        self._armed: bool | None = None
        """Whether armed for solicited completions only; None while not armed."""

    def add(self, wc: Wc, retire: Callable[[], None], *, solicited: bool) -> None:
        """A completion; `retire` is called when it is polled."""
        self._done.append((wc, retire))
        if self.channel is not None and self._armed is not None and (solicited or not self._armed):
            self._armed = None
            self.channel.put(self)

    def poll(self, limit: int = 16) -> list[Wc]:
        """Up to `limit` completions, oldest first."""
        with self._lock:
            found: list[Wc] = []
            while self._done and len(found) < limit:
                wc, retire = self._done.popleft()
                retire()
                found.append(wc)
            return found

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event; at once when completions wait."""
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel")
        with self._lock:
            self._armed = solicited_only
            if self._done:
                self._armed = None
                self.channel.put(self)

    def discard(self, qpn: int) -> None:
        """Drop the completions of a queue pair that was reset."""
        self._done = deque(each for each in self._done if each[0].qp_num != qpn)

    def destroy(self) -> None:
        """Nothing is held."""
