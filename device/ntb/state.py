"""What a bridge holds at a moment, for those who only look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bluebridge.device.ntb.window import Window


class WindowState(NamedTuple):
    """One window onto this guest's memory: the peer's BAR, or look-up window `lut` of it.

    `length` bytes from the own address `base` on are shown, 0 when it is closed. `closed` and
    `aborts` count the peer's accesses that met nothing.
    """

    bar: int
    lut: int | None
    base: int
    length: int
    closed: int
    aborts: int


class BridgeState(NamedTuple):
    """One side: `link` is None where software keeps it, and `wanted` whether its driver wants it.

    `lines` are lines of 64 bytes of registers by offset, without those that are all zero.
    `lost` counts doorbells rung while the link was down. `hung`: an erratum locked the bridge up.
    """

    link: bool | None
    windows: Sequence[WindowState]
    lines: Mapping[int, bytes]
    lost: int = 0
    hung: bool = False
    wanted: bool | None = None
    partition: int | None = None


def window_state(bar: int, window: Window, lut: int | None = None) -> WindowState:
    """What a window shows."""
    counts = window.counts
    return WindowState(
        bar, lut, window.base, window.length, counts.get("closed", 0), counts.get("aborts", 0)
    )
