"""Memory regions and their keys (core/mr.c, ib/mr.c)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import MPT, MPT_STATUS_FREE, MPT_STATUS_SOFTWARE
from bluebridge.guest.drivers.common.region_pages import pages_of, rights
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.icm import MttRange
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags

MAX_FAST_REG_PAGES = 511
WHOLE_MEMORY = (1 << 64) - 1


def key_of(index: int) -> int:
    """Return the memory key of an MPT number: the number in the upper 24 bits, a free byte below.

    core/mr.c: hw_index_to_key.
    """
    return (index << 8 | index >> 24) & 0xFFFFFFFF


class _Region:
    """A memory region with an MPT entry that the device owns."""

    def __init__(
        self, adapter: Adapter, pdn: int, entry: dict[str, int], mtt: MttRange | None
    ) -> None:
        self._commands = adapter.commands
        self._icm = adapter.icm
        self._numbers = adapter.numbers.regions
        self._mask = adapter.numbers.mpt_mask
        self._mtt = mtt
        self._number = self._numbers.allocate() | adapter.numbers.key_byte() << 24
        self._key = key_of(self._number)
        self._alive = True
        fixed = {"region": 1, "mio": 1, "pd": pdn, "key": self._number}
        data = MPT.pack({**fixed, **entry})
        try:
            self._commands.run(Opcode.SW2HW_MPT, self._index, data=data)
        except VerbsError:
            self._release()
            raise

    @property
    def lkey(self) -> int:
        """The key for local work requests."""
        return self._key

    @property
    def rkey(self) -> int:
        """The key that a peer needs for RDMA to the region."""
        return self._key

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""
        if self._alive:
            self._commands.run(Opcode.HW2SW_MPT, self._index, 1)
            self._release()

    @property
    def _index(self) -> int:
        return self._number & self._mask

    def _release(self) -> None:
        self._alive = False
        if self._mtt is not None:
            self._icm.free_mtt(self._mtt)
        self._numbers.free(self._number)


class Mr(_Region):
    """A memory region: `length` bytes from IOVA `iova` on."""

    def __init__(
        self,
        adapter: Adapter,
        pdn: int,
        memory: int | Sequence[int],
        length: int,
        iova: int,
        access: AccessFlags | int,
        page_shift: int,
    ) -> None:
        self.iova = iova
        self.length = length
        pages, page_shift = pages_of(memory, length, iova, page_shift)
        bits = rights(access)
        mtt = adapter.icm.allocate_mtt(pages)
        entry = {
            **bits, "status": MPT_STATUS_SOFTWARE, "start": iova, "length": length,
            "entity_size": page_shift, "mtt_addr": mtt.address,
        }  # fmt: skip
        super().__init__(adapter, pdn, entry, mtt)


class DmaMr(_Region):
    """A region over all of memory: the IOVA is the DMA address (ib/mr.c: mlx4_ib_get_dma_mr)."""

    def __init__(self, adapter: Adapter, pdn: int, access: AccessFlags | int) -> None:
        entry = {
            **rights(access),
            "status": MPT_STATUS_SOFTWARE,
            "physical": 1,
            "length": WHOLE_MEMORY,
        }
        super().__init__(adapter, pdn, entry, None)


class FastRegMr(_Region):
    """A region that REG_MR work requests fill and LOCAL_INV or a peer's SEND_WITH_INV empties."""

    def __init__(self, adapter: Adapter, pdn: int, max_pages: int) -> None:
        if not 1 <= max_pages <= MAX_FAST_REG_PAGES:
            raise VerbsError(f"{max_pages} pages: 1 to {MAX_FAST_REG_PAGES} are possible")
        self.max_pages = max_pages
        mtt = adapter.icm.allocate_mtt([0] * max_pages)
        # A page of its own: a list given to the device must not cross a page.
        self.page_list = adapter.bus.allocate(4096)
        entry = {
            "status": MPT_STATUS_FREE,
            "fast_reg": 1,
            "en_inv": 3,  # Linux sets it everywhere; other regions are not the peer's to end
            "atomic_enable": 1,
            "mtt_sz": max_pages,
            "mtt_addr": mtt.address,
        }
        with ExitStack() as undo:
            undo.callback(self.page_list.free)
            super().__init__(adapter, pdn, entry, mtt)
            undo.pop_all()

    def next_key(self) -> int:
        """Count up the key's low byte for the next REG_MR and return the new key.

        As Linux's ib_update_fast_reg_key.
        """
        self._key = (self._key & 0xFFFFFF00) | ((self._key + 1) & 0xFF)
        return self._key

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""
        if self._alive:
            super().close()
            self.page_list.free()
