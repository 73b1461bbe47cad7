"""Memory regions and their keys (core/mr.c, ib/mr.c)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import MPT, MPT_STATUS_FREE, MPT_STATUS_SOFTWARE
from bluebridge.guest.drivers.common.region_pages import rights
from bluebridge.guest.drivers.common.regions import FastRegistration, Region
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.icm import MttRange
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags

WHOLE_MEMORY = (1 << 64) - 1


def key_of(index: int) -> int:
    """Return the memory key of an MPT number: the number in the upper 24 bits, a free byte below.

    core/mr.c: hw_index_to_key.
    """
    return (index << 8 | index >> 24) & 0xFFFFFFFF


class _Region(Region):
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
        fixed = {"region": 1, "mio": 1, "pd": pdn, "key": self._number}
        data = MPT.pack({**fixed, **entry})
        try:
            self._commands.run(Opcode.SW2HW_MPT, self._index, data=data)
        except VerbsError:
            self._release()
            raise

    def _end(self) -> None:
        self._commands.run(Opcode.HW2SW_MPT, self._index, 1)
        self._release()

    @property
    def _index(self) -> int:
        return self._number & self._mask

    def _release(self) -> None:
        if self._mtt is not None:
            self._icm.free_mtt(self._mtt)
        self._numbers.free(self._number)


class Mr(_Region):
    """A memory region: `length` bytes from IOVA `iova` on, in pages of `1 << shift` bytes."""

    def __init__(
        self,
        adapter: Adapter,
        pdn: int,
        pages: Sequence[int],
        shift: int,
        iova: int,
        length: int,
        access: AccessFlags | int,
    ) -> None:
        mtt = adapter.icm.allocate_mtt(pages)
        entry = {
            **rights(access), "status": MPT_STATUS_SOFTWARE, "start": iova, "length": length,
            "entity_size": shift, "mtt_addr": mtt.address,
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


class FastRegMr(FastRegistration, _Region):
    """A region of up to `max_pages` pages that work requests fill (ib/mr.c: mlx4_ib_alloc_mr)."""

    def __init__(self, adapter: Adapter, pdn: int, max_pages: int) -> None:
        self._make_list(adapter.bus, max_pages)
        with ExitStack() as undo:
            undo.callback(self.page_list.free)
            mtt = adapter.icm.allocate_mtt([0] * max_pages)
            entry = {
                "status": MPT_STATUS_FREE,
                "fast_reg": 1,
                "en_inv": 3,  # Linux sets it everywhere; other regions are not the peer's to end
                "atomic_enable": 1,
                "mtt_sz": max_pages,
                "mtt_addr": mtt.address,
            }
            super().__init__(adapter, pdn, entry, mtt)
            undo.pop_all()
