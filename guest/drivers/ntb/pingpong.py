"""A ping-pong between both sides of a bridge: by doorbell, and by small copies of the engine."""

from __future__ import annotations

import time

from bluebridge.guest.bus.vectors import Deadline
from bluebridge.guest.drivers.dma import Engine
from bluebridge.guest.drivers.ntb.bridge import Bridge
from bluebridge.guest.drivers.ntb.window import NtbTimeout
from bluebridge.guest.rounds import Turn, ping_pong

LARGEST = 1 << 16
"""The largest copy in bytes; the second half of the buffer is the source of copies."""
BELL = 1
_LOOKS = 256
"""The number of polls of memory between two looks at the clock."""
_ANSWER_SECONDS = 10.0
"""The time that a turn of the peer may take."""
MEETING_SPAD = 15
MEETING = 0x50494E47
"""The number that a side writes into the peer's meeting scratchpad when its program runs."""


class PingPong:
    """One side of the ping-pong, with the link up; times are halves of a round trip.

    The upstream side plays first.
    """

    def __init__(self, bridge: Bridge, engine: Engine) -> None:
        self.bridge = bridge
        self._channel = engine.channels[0]
        self._first = bridge.port == 0
        self._window = bridge.windows[0]
        self._memory = bridge.allocate(2 * LARGEST, max(self._window.align, 4096))
        self._window.set_translation(self._memory.address, LARGEST)

    def meet(self, timeout: float) -> None:
        """Wait until the peer runs the ping-pong, too; raises `NtbTimeout`."""
        deadline = Deadline(timeout)
        self.bridge.clear(BELL)
        self.bridge.unmask(BELL)
        self.bridge.set_peer_spad(MEETING_SPAD, MEETING)
        while self.bridge.spad(MEETING_SPAD) != MEETING:
            if deadline.over:
                raise NtbTimeout("the peer plays no ping-pong: start the same command there")
            time.sleep(0.005)

    def by_doorbell(self, count: int) -> list[float]:
        """Return the microseconds from each ring until the peer's process, asleep, has it."""
        ring, wait = self.bridge.ring, self.bridge.wait_rung
        return self._play(count, lambda _: ring(BELL), lambda _: wait(BELL, _ANSWER_SECONDS))

    def by_interrupt(self, count: int) -> list[float]:
        """Return the microseconds from each ring until the peer's process, polling, has it."""
        ring, listen = self.bridge.ring, self.bridge.listener(BELL)
        return self._play(count, lambda _: ring(BELL), lambda _: listen(_ANSWER_SECONDS))

    def by_dma(self, count: int, size: int) -> list[float]:
        """Return the microseconds from each copy's start until the peer sees its last byte."""
        view, copy, last = self._memory.view, self._channel.copy, size - 1
        source, target = self._memory.address + LARGEST, self._window.address

        def send(number: int) -> None:
            view[LARGEST + last] = number
            copy(source, target, size)

        def hear(number: int) -> None:
            deadline = Deadline(_ANSWER_SECONDS)
            while True:
                for _ in range(_LOOKS):
                    if view[last] == number:
                        return
                if deadline.over:
                    raise NtbTimeout("the peer does not answer")

        return self._play(count, send, hear)

    def _play(self, count: int, send: Turn, hear: Turn) -> list[float]:
        return list(ping_pong(count, self._first, send, hear))

    def close(self) -> None:
        """Close the window and free its memory."""
        self._window.clear_translation()
        self._memory.free()
