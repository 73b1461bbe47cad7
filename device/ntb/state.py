"""Snapshots of a bridge's state, for readers that do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bluebridge.device.ntb.window import Window


class WindowState(NamedTuple):
    """One window onto this guest's memory: the peer's BAR `bar`, or look-up window `lut` in it.

    It shows `length` bytes from address `base` of this guest on; a closed window has length 0.
    `closed` counts the peer's accesses while it was closed, `aborts` those to addresses where
    nothing answers.
    """

    bar: int
    lut: int | None
    base: int
    length: int
    closed: int
    aborts: int


class BridgeState(NamedTuple):
    """The state of one side of a bridge pair.

    `link` is None where software keeps the link state; `wanted` says whether this side's driver
    wants the link. `lines` are lines of 64 bytes of registers by offset, without those that are all
    zero. `lost` counts rings while the link was down. `hung` says whether an erratum locked the
    bridge up.
    """

    link: bool | None
    windows: Sequence[WindowState]
    lines: Mapping[int, bytes]
    lost: int = 0
    hung: bool = False
    wanted: bool | None = None
    partition: int | None = None


def window_state(bar: int, window: Window, lut: int | None = None) -> WindowState:
    """Return the present state of a window."""
    counts = window.counts
    return WindowState(
        bar, lut, window.base, window.length, counts.get("closed", 0), counts.get("aborts", 0)
    )
