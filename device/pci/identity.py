"""What a PCI function is to its host: identity and BARs, as its config space says them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A memory BAR: `size` in bytes, a power of two; 64-bit ones take two indexes.

    From offset `lines` on, adjacent posted stores of a line of 64 bytes may come as one write.
    """

    index: int
    size: int
    wide: bool = True
    prefetchable: bool = False
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What `lspci` says of the function; `class_code` has 24 bits."""

    vendor: int
    device: int
    class_code: int
    subsystem_vendor: int
    subsystem: int
    revision: int = 0
