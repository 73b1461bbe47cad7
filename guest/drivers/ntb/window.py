"""Memory windows of a bridge, in both directions."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.guest.bus.interface import Function
from bluebridge.guest.errors import DeviceError

Program = Callable[[int, int], None]
"""The type of a call that sets a window's translation to address and length.

0 and 0 close the window. Raises `NtbError`.
"""


class NtbError(DeviceError):
    """The bridge or its peer did not do what was asked."""


class NtbTimeout(NtbError):
    """The bridge or its peer did not do within the time limit what a call waited for."""


class Window:
    """Memory window `number` of a bridge, in both directions.

    Inwards, `set_translation` shows a stretch of this machine's memory to the peer. Outwards, the
    peer's memory appears at the bus address `address`, for `size` bytes at most: `store` and `load`
    are accesses of this processor, each of which the bridge's server takes one by one; a DMA engine
    copies to and from `address` + offset much faster. What the peer does not show reads all ones.
    """

    def __init__(
        self, function: Function, number: int, bar: int, align: int, program: Program
    ) -> None:
        self.number = number
        self.align = align
        """The number of bytes of which a translation's address must be a multiple."""
        self.address, self.size = function.bar(bar)
        self._function = function
        self._bar = bar
        self._program = program

    def set_translation(self, address: int, length: int) -> None:
        """Show `length` bytes of this machine's memory from bus address `address` on."""
        if address % self.align:
            raise NtbError(
                f"window {self.number} shows addresses that are multiples of {self.align:#x}, "
                f"{address:#x} is none"
            )
        if not 0 < length <= self.size:
            raise NtbError(f"window {self.number} shows 1 to {self.size:#x} bytes, not {length:#x}")
        self._program(address, length)

    def clear_translation(self) -> None:
        """Close the window to the peer; what the peer stores from then on is lost."""
        self._program(0, 0)

    def store(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Store into the peer's memory; a later `load` returns after the data has arrived."""
        self._check(offset, len(data))
        self._function.store_bytes(self._bar, offset, data)

    def load(self, offset: int, length: int) -> bytes:
        """Read `length` bytes of the peer's memory."""
        self._check(offset, length)
        return self._function.load_bytes(self._bar, offset, length)

    @property
    def memory(self) -> memoryview | None:
        """Return the bytes of the whole window where it aliases the peer's memory, else None.

        Slices of it are copied at the speed of memory, in pieces of any size; through another
        window they would become stores of single bytes.
        """
        return self._function.mapping(self._bar)

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or offset + length > self.size:
            raise NtbError(
                f"window {self.number} has {self.size:#x} bytes, no {offset + length:#x}"
            )
