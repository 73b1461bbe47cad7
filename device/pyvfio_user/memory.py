"""The client's memory as the device sees it."""

from __future__ import annotations

from dataclasses import dataclass

from .constants import Protection


@dataclass(eq=False, slots=True)
class DmaRegion:
    """`length` bytes of the client's memory at bus address `iova`.

    `view` shows them mapped into this process, read-only when the client withheld the right to
    write; it is None when the client shares no file for them, and is released (every access
    raises ValueError) before the mapping goes. No slice of it may outlive the unmap callback:
    the memory behind it is gone then and an access would kill the process.
    """

    iova: int
    length: int
    view: memoryview | None
    protection: Protection

    @property
    def end(self) -> int:
        """The first bus address behind the region."""
        return self.iova + self.length

    def holds(self, address: int, length: int) -> bool:
        """Whether all of `length` bytes at bus address `address` lie inside."""
        return self.iova <= address and address + length <= self.end
