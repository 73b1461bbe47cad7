"""Hosts of the unit tests on which no call of a device may take long, and work that never ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from bluebridge.device.pci.host import Host
from tests.models.fake_bus import FakeFunction
from tests.models.fake_host import FakeHost, FakeTimer

STALL_SECONDS = 0.05
"""Of processor time for one call of a device: an access, a timer, a turn of its work.

The law of the loop, without an allowance for code that is interpreted and counts its lines: calls
of the corpora take 7 ms at most.
"""
CALLS = 2000
"""That are made before other steps go on: work without an end goes on with the next step."""


class Stall(Exception):
    """A call of a device took longer than `STALL_SECONDS`."""


def timed(action: Callable[[], None]) -> Callable[[], None]:
    """`action`, which raises `Stall` when it took long."""

    def call() -> None:
        started = time.thread_time()
        action()
        seconds = time.thread_time() - started
        if seconds > STALL_SECONDS and sys.gettrace() is None:
            raise Stall(f"{action} computed for {seconds:.3f} s")

    return call


class TimedHost(FakeHost):
    """Guest memory and a clock."""

    def __init__(self, name: str = "a", *, size: int = 8 << 20) -> None:
        self._mapped: dict[int, int] = {}
        super().__init__(name, size=size)

    def give_memory(self, base: int, size: int) -> None:
        """Add zeroed memory."""
        self._mapped[base] = size
        super().give_memory(base, size)

    def unmap(self, base: int) -> None:
        """Take the memory at `base` away; unknown ones are ignored."""
        self._mapped.pop(base, None)
        super().unmap(base)

    def overlaps(self, base: int, size: int) -> bool:
        """Whether there is memory among these bytes."""
        return any(
            start < base + size and base < start + length for start, length in self._mapped.items()
        )

    def call_later(self, seconds: float, action: Callable[[], None]) -> FakeTimer:
        return super().call_later(seconds, timed(action))

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run with the next step."""
        super().call_soon(timed(action))

    def call_next_turn(self, action: Callable[[], None]) -> None:
        """Run with the next step."""
        super().call_next_turn(timed(action))

    @property
    def busy(self) -> bool:
        """Whether calls wait that need no time to pass."""
        return bool(self._soon)

    def _drain(self) -> None:
        calls = 0
        while self._soon and calls < CALLS:
            self._soon.popleft()()
            calls += 1


class TimedFunction(TimedHost, FakeFunction):
    """A function on a guest's bus; `beside` another it has that one's memory."""

    def __init__(self, name: str, host: Host, *, beside: TimedFunction | None = None) -> None:
        self._mapped = {}
        FakeFunction.__init__(self, name, host, beside=beside)
        if beside is not None:
            self._mapped = beside._mapped
