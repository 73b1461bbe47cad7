"""A window that is mapped to the peer's memory, so that stores run at the speed of memory.

QEMU tells each guest's DMA engine of the guest's memory, and the peer's bridge lets its own client
map the file of that memory at the same addresses. So the window always shows the peer's bus from
address 0 on, and no register changes that. A client maps once, when the bridge is plugged in: both
engines must be there before the first bridge, and the window cannot be closed.
"""

from __future__ import annotations

from bluebridge.device.pci.function import Function
from bluebridge.device.pyvfio_user import DmaRegion, MappedFile, Protection


class Alias:
    """Lends a bridge the memory of its peer to map: the longest stretch that one file holds.

    That is all of a guest's memory from 1 MiB to its end below 4 GiB; accesses to the remaining
    addresses are trapped as usual.
    """

    def __init__(self, lender: Function, bridge: Function, bar: int) -> None:
        """Let `bar` of `bridge` show the memory of the guest that `lender` is in."""
        self._bridge = bridge
        self._bar = bar
        self._shown: DmaRegion | None = None
        lender.watch_memory(self._borrow)

    def _borrow(self, region: DmaRegion, there: bool) -> None:
        if there:
            self._show(region)
        elif region is self._shown:
            self._shown = None
            self._bridge.alias(self._bar, None)

    def _show(self, region: DmaRegion) -> None:
        if region.file is None or not region.protection & Protection.WRITE:
            return
        longer = self._shown is None or region.length > self._shown.length
        if longer and region.file.offset == region.iova:
            self._shown = region
            file = MappedFile(region.file.fd, region.iova, region.length)
            self._bridge.alias(self._bar, file)
