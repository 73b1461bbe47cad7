"""Protection domains of an HCA."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.queues.qp import Qp
from bluebridge.guest.drivers.hca.queues.srq import Srq
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.memory_regions import DmaMr, FastRegMr, Mr
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import QpInit


class Pd:
    """A protection domain; `port` and `blueflame` are for its queue pairs."""

    def __init__(self, adapter: Adapter, port: EthernetPort, blueflame: BlueFlame | None) -> None:
        self._adapter = adapter
        self._port = port
        self._blueflame = blueflame
        self.pdn = adapter.numbers.protection_domains.allocate()

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> DmaMr:
        """Register all of memory; addresses in the region are DMA addresses."""
        return DmaMr(self._adapter, self.pdn, access)

    def reg_mr(
        self,
        memory: int | Sequence[int],
        length: int,
        iova: int | None = None,
        access: AccessFlags | int = AccessFlags.LOCAL_WRITE,
        page_shift: int = 12,
    ) -> Mr:
        """Register `length` bytes; peers and work requests address them from `iova` on.

        `memory` is the DMA address of contiguous memory, or the addresses of all its pages of
        `1 << page_shift` bytes; the first page's offset is that of `iova`. `iova` defaults to the
        (first) address. Raises `VerbsError`.
        """
        if iova is None:
            iova = memory if isinstance(memory, int) else memory[0]
        return Mr(self._adapter, self.pdn, memory, length, iova, access, page_shift)

    def alloc_fast_reg_mr(self, max_pages: int) -> FastRegMr:
        """Make a region for REG_MR work requests of up to `max_pages` pages (511 at most)."""
        return FastRegMr(self._adapter, self.pdn, max_pages)

    def create_qp(self, init: QpInit) -> Qp:
        """Make a queue pair in state RESET."""
        return Qp(self._adapter, self.pdn, init, self._port, self._blueflame)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> Srq:
        """Make a shared receive queue for `max_wr` requests."""
        return Srq(self._adapter, self.pdn, max_wr, max_sge)

    def close(self) -> None:
        """Free the domain's number; everything in the domain must have been closed before."""
        self._adapter.numbers.protection_domains.free(self.pdn)
