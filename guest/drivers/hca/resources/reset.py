"""Taking the device over and resetting it (core/main.c: mlx4_get_ownership, core/reset.c)."""

from __future__ import annotations

import time

from bluebridge.device.layout.mlx4.bar0 import (
    HCR,
    HCR_GO,
    OWNERSHIP_OFFSET,
    RESET_OFFSET,
    RESET_VALUE,
    SEMAPHORE_OFFSET,
)
from bluebridge.guest.drivers.bus.interface import Bus
from bluebridge.guest.drivers.hca.resources.errors import HcaError
from bluebridge.guest.drivers.hca.resources.health import ALL_ONES, HcaHealth

SEMAPHORE_SECONDS = 10.0
READY_SECONDS = 2.0


def reset_device(bus: Bus, health: HcaHealth) -> None:
    """Own the device and reset it; raises `HcaError` when it is taken or does not answer.

    Linux sleeps a second after the reset; here the command register is polled instead, which is
    idle with toggle 0 as soon as the reset is done.
    """
    owner = bus.read32(0, OWNERSHIP_OFFSET)
    if owner == ALL_ONES:
        raise health.loss()
    if owner:
        raise HcaError("the device is owned by another driver (ownership word is not 0)")
    _wait(bus, health, SEMAPHORE_OFFSET, SEMAPHORE_SECONDS, "hardware semaphore")
    bus.write32(0, RESET_OFFSET, RESET_VALUE)
    after = "command register after the reset"
    _wait(bus, health, HCR.at("control"), READY_SECONDS, after, HCR_GO)


def release_device(bus: Bus) -> None:
    """Give the ownership back (mlx4_free_ownership)."""
    bus.write32(0, OWNERSHIP_OFFSET, 0)


def _wait(
    bus: Bus, health: HcaHealth, offset: int, seconds: float, what: str, mask: int = ALL_ONES
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        value = bus.read32(0, offset)
        if value != ALL_ONES and not value & mask:
            return
        if time.monotonic() > deadline:
            # Only after a while: a device may read as all ones in the middle of its reset.
            if value == ALL_ONES:
                raise health.loss()
            raise HcaError(f"the {what} stays at {value:#010x}")
        time.sleep(0.001)
