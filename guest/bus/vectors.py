"""MSI-X vectors as eventfds: waiting for some of them and telling which have fired."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Collection, Sequence


class Vectors:
    """The eventfds of a function's vectors, as `Function.enable_interrupts` gives them."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds = tuple(fds)
        for fd in self.fds:
            os.set_blocking(fd, False)
        self._numbers = {fd: vector for vector, fd in enumerate(self.fds)}
        self._pollers: dict[tuple[int, ...], select.poll] = {}

    def wait(self, wanted: Collection[int], timeout: float | None) -> list[int]:
        """Return those of `wanted` that fired since the last call, an empty list after `timeout`.

        `timeout` is in seconds, None waits without end. A vector that is returned counts as not
        fired until it fires again.
        """
        ready = self._poller(wanted).poll(None if timeout is None else timeout * 1000)
        return self._consume(ready)

    def spinner(self, wanted: Collection[int]) -> Callable[[int], list[int]]:
        """Return a function that polls for as many rounds as its argument says, without sleep.

        It returns the vectors of `wanted` that have fired, like `wait`.
        """
        poll, consume = self._poller(wanted).poll, self._consume

        def spin(looks: int) -> list[int]:
            for _ in range(looks):
                if ready := poll(0):
                    return consume(ready)
            return []

        return spin

    def _consume(self, ready: list[tuple[int, int]]) -> list[int]:
        found = []
        for fd, _ in ready:
            try:
                os.read(fd, 8)
            except BlockingIOError:  # another thread was faster
                continue
            found.append(self._numbers[fd])
        return found

    def drain(self, vectors: Collection[int]) -> None:
        """Forget that these vectors have fired."""
        for vector in vectors:
            try:
                os.read(self.fds[vector], 8)
            except BlockingIOError:
                continue

    def _poller(self, wanted: Collection[int]) -> select.poll:
        key = tuple(wanted)
        poller = self._pollers.get(key)
        if poller is None:
            poller = self._pollers[key] = select.poll()
            for vector in key:
                poller.register(self.fds[vector], select.POLLIN)
        return poller


class Deadline:
    """A time limit of `timeout` seconds from now on; None never ends."""

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout

    @property
    def left(self) -> float | None:
        """The seconds that are left, at least 0; None when there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """True when the time has passed."""
        return self._end is not None and time.monotonic() >= self._end
