"""Identity and BARs of a PCI function, as its configuration space shows them to the host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A memory BAR of `size` bytes, a power of two; a 64-bit BAR takes two indexes.

    From offset `lines` on, adjacent posted stores within a line of 64 bytes may come as one write.
    """

    index: int
    size: int
    wide: bool = True
    prefetchable: bool = False
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a function, as `lspci` shows it; `class_code` has 24 bits."""

    vendor: int
    device: int
    class_code: int
    subsystem_vendor: int
    subsystem: int
    revision: int = 0
