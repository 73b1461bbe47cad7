"""A window that is the peer's memory itself: processors store there at the speed of memory.

Each guest's DMA engine is told of the guest's memory by QEMU, and the peer's bridge lets its own
client map the file of that memory, at the same addresses: so the window shows the peer's bus from
address 0 on, and no register changes that. A client maps once, when the bridge is plugged in. So
both engines have to be there before the first bridge, and a window cannot be closed.
"""

from __future__ import annotations

from bluebridge.device.pci.function import Function
from bluebridge.device.pyvfio_user import DmaRegion, MappedFile, Protection


class Alias:
    """Lends a bridge the memory of its peer to map: the longest stretch that one file holds.

    Of a guest's memory that is all from 1 MiB to its end below 4 GiB; what is left over is trapped
    as usual.
    """

    def __init__(self, lender: Function, bridge: Function, bar: int) -> None:
        """`bar` of `bridge` is to show the memory of the guest that `lender` is in."""
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
