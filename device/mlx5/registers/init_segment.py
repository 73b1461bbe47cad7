"""The initialization segment of BAR0: start of the command queue, health, clock.

Rules: Linux `core/cmd.c: mlx5_cmd_enable`, `core/health.c: poll_health, mlx5_error_sw_reset`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Final

from bluebridge.device.layout.mlx5.init_segment import (
    COMMAND_INTERFACE,
    DOORBELL,
    FIRMWARE,
    HEALTH,
    HEALTH_BUFFER,
    HEALTH_COUNTER,
    INTERFACE,
    LOG_ENTRY_SIZE,
    LOG_QUEUE_ENTRIES,
    NIC_DISABLED,
    NIC_SOFTWARE_RESET,
    QUEUE_HIGH,
    QUEUE_LOW,
    REAL_TIME,
    TIMER_HIGH,
    TIMER_LOW,
)
from bluebridge.device.mlx5.rings.clock import clock
from bluebridge.device.mlx5.settings import config

WORD: Final = 4
_PAGE: Final = 0xFFFFF000
_INTERFACE_SHIFT: Final = 8
_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000
TICK_NS: Final = 10 * _MS
"""The health counter's unit; drivers look at it every two seconds."""
_MASK: Final = 0xFFFFFFFF
FAILED: Final = 1 << 31 | 1 << 27
"""Bits of the health buffer's word `state`: recovery is wanted, and the word is valid."""
FIRMWARE_ERROR: Final = 0x01 << 16
"""The health buffer's word `syndrome` (core/health.c: hsynd_str)."""


class InitSegment:
    """The segment of one adapter.

    `ring` takes doorbells of the command queue, `start` its address, and `restart` is called when
    software resets the adapter or takes its interface down.
    """

    def __init__(
        self, ring: Callable[[int], None], start: Callable[[int], None], restart: Callable[[], None]
    ) -> None:
        self._ring = ring
        self._start = start
        self._restart = restart
        self._high = 0
        self._low = 0
        self._interface = NIC_DISABLED
        self.failed = False
        """Whether an internal error stopped the adapter, until a reset."""

    def reset(self) -> None:
        """Return to the state after power-on: the interface is down until there is a queue."""
        self._high = self._low = 0
        self._interface = NIC_DISABLED
        self.failed = False

    def fail(self) -> None:
        """Show an internal error; drivers see an interface that is down and recover."""
        self._interface = NIC_DISABLED
        self.failed = True

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the segment, zeros where there is no register."""
        first = offset & -WORD
        words = range(first, offset + length, WORD)
        found = b"".join((self._word(at) & _MASK).to_bytes(WORD, "big") for at in words)
        return found[offset - first : offset - first + length]

    def write(self, offset: int, data: bytes) -> None:
        """Store whole words; what is smaller has no effect."""
        if offset % WORD or len(data) % WORD:
            return
        for at in range(0, len(data), WORD):
            self._store(offset + at, int.from_bytes(data[at : at + WORD], "big"))

    def _store(self, offset: int, value: int) -> None:
        if offset == QUEUE_HIGH:
            self._high = value
        elif offset == QUEUE_LOW:
            self._choose(value)
        elif offset == DOORBELL and not self.failed and not self._interface:
            self._ring(value)

    def _choose(self, value: int) -> None:
        """Take the address of the queue, or a wish of another state of the interface."""
        interface, high = value >> _INTERFACE_SHIFT & 7, self._high
        # A driver that recovers from an internal error resets nothing; it says where its queue is
        # once more (core/health.c: mlx5_health_try_recover).
        if interface in (NIC_DISABLED, NIC_SOFTWARE_RESET) or self.failed:
            self._restart()
        if interface not in (NIC_DISABLED, NIC_SOFTWARE_RESET):
            self._high, self._low = high, value & _PAGE
            self._interface = 0
            self._start(high << 32 | self._low)

    def _word(self, offset: int) -> int:
        if HEALTH <= offset < HEALTH + HEALTH_BUFFER.size:
            return self._health(offset)
        found = _READERS.get(offset)
        if found is not None:
            return found()
        if offset == QUEUE_HIGH:
            return self._high
        if offset == QUEUE_LOW:
            shape = LOG_QUEUE_ENTRIES << 4 | LOG_ENTRY_SIZE
            return self._low | self._interface << _INTERFACE_SHIFT | shape
        return 0

    def _health(self, offset: int) -> int:
        if offset == HEALTH_BUFFER.at("fw_ver"):
            major, minor, subminor = config.FIRMWARE
            return major << 24 | minor << 16 | subminor
        if self.failed and offset == HEALTH_BUFFER.at("state"):
            return FAILED
        if self.failed and offset == HEALTH_BUFFER.at("syndrome"):
            return FIRMWARE_ERROR
        return 0


def _firmware() -> int:
    major, minor, _ = config.FIRMWARE
    return minor << 16 | major


_READERS: Final[dict[int, Callable[[], int]]] = {
    FIRMWARE: _firmware,
    INTERFACE: lambda: COMMAND_INTERFACE << 16 | config.FIRMWARE[2],
    HEALTH_COUNTER: lambda: monotonic_ns() // TICK_NS,
    TIMER_HIGH: lambda: clock() >> 32,
    TIMER_LOW: clock,
    REAL_TIME: lambda: time_ns() // _SECOND,
    REAL_TIME + WORD: lambda: time_ns() % _SECOND,
}
"""Registers that need nothing of the adapter, by their offset."""
