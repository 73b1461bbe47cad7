"""The places of a bridge at which faults by name strike it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bluebridge.device.ntb.window import Window
from bluebridge.device.pci.registers import RegisterFile


@dataclass(slots=True)
class FaultPoints:
    """The places of one side of a bridge pair.

    `windows` returns the windows onto its guest's memory, `scratchpads` are the offsets of its own
    ones in `registers`. `loses_ring` tells of each ring of the peer whether it gets lost.
    """

    registers: RegisterFile
    windows: Callable[[], Iterable[Window]]
    scratchpads: range = range(0)
    loses_ring: Callable[[], bool] | None = None

    def loses(self) -> bool:
        """Return True if a ring of the peer gets lost."""
        return self.loses_ring is not None and self.loses_ring()
