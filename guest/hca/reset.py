"""Taking the device over and resetting it (core/main.c: mlx4_get_ownership, core/reset.c)."""

from __future__ import annotations

import time

from device.layout.mlx4.bar0 import (
    HCR,
    HCR_GO,
    OWNERSHIP_OFFSET,
    RESET_OFFSET,
    RESET_VALUE,
    SEMAPHORE_OFFSET,
)
from guest.bus import Bus
from guest.hca.errors import HcaError

SEMAPHORE_SECONDS = 10.0
READY_SECONDS = 2.0


def reset_device(bus: Bus) -> None:
    """Become the owner and reset; raises `HcaError` when the device is taken or stays silent.

    Linux sleeps a second after the reset; here the command register is polled instead, which is
    idle with toggle 0 as soon as the reset is done.
    """
    if bus.read32(0, OWNERSHIP_OFFSET):
        raise HcaError("the device is owned by another driver (ownership word is not 0)")
    _wait(bus, SEMAPHORE_OFFSET, SEMAPHORE_SECONDS, "hardware semaphore")
    bus.write32(0, RESET_OFFSET, RESET_VALUE)
    _wait(bus, HCR.at("control"), READY_SECONDS, "command register after the reset", HCR_GO)


def release_device(bus: Bus) -> None:
    """Give the ownership back (mlx4_free_ownership)."""
    bus.write32(0, OWNERSHIP_OFFSET, 0)


def _wait(bus: Bus, offset: int, seconds: float, what: str, mask: int = 0xFFFFFFFF) -> None:
    deadline = time.monotonic() + seconds
    while True:
        value = bus.read32(0, offset)
        if value != 0xFFFFFFFF and not value & mask:
            return
        if time.monotonic() > deadline:
            raise HcaError(f"the {what} stays at {value:#010x}")
        time.sleep(0.001)
