"""Protection domains: what regions and queue pairs belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bluebridge.guest.hca.memory_regions import DmaMr, FastRegMr, Mr
from bluebridge.guest.hca.queues.qp import Qp
from bluebridge.guest.hca.queues.srq import Srq
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import QpInit

if TYPE_CHECKING:
    from bluebridge.guest.hca.context import Context


class Pd:
    """A protection domain."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.pdn = ctx.pd_numbers.allocate()

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> DmaMr:
        """A region over all of memory; addresses in it are DMA addresses."""
        return DmaMr(self, access)

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
        return Mr(self, memory, length, iova, access, page_shift)

    def alloc_fast_reg_mr(self, max_pages: int) -> FastRegMr:
        """A region for REG_MR work requests of up to `max_pages` pages (511 at most)."""
        return FastRegMr(self, max_pages)

    def create_qp(self, init: QpInit) -> Qp:
        """A queue pair in state RESET."""
        return Qp(self, init)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> Srq:
        """A shared receive queue for `max_wr` requests."""
        return Srq(self, max_wr, max_sge)

    def close(self) -> None:
        """Give the number back; everything in the domain must be gone."""
        self.ctx.pd_numbers.free(self.pdn)
