"""Memory keys by commands (ib/mr.c: reg_create, mlx5_ib_get_dma_mr, __mlx5_ib_alloc_mr)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import MKC, AccessMode
from bluebridge.device.layout.mlx5.objects import CREATE_MKEY, ENTRY
from bluebridge.guest.drivers.common.region_pages import rights
from bluebridge.guest.drivers.common.regions import FastRegistration, Region
from bluebridge.guest.drivers.mlx5.adapter import Adapter
from bluebridge.guest.verbs.enums import AccessFlags

ANY_PAIR: Final = 0xFFFFFF
_ADDRESSES: Final = 2
"""Addresses of pages in 16 bytes, which lists are counted in."""
_NAMES: Final = {"remote_atomic": "atomic"}


class Key(Region):
    """A memory key of protection domain `pdn` with the context `values` and a list of pages."""

    def __init__(
        self, adapter: Adapter, pdn: int, values: dict[str, Value], pages: Sequence[int] = ()
    ) -> None:
        self._commands = adapter.commands
        low = adapter.key_byte()
        units = -(-len(pages) // _ADDRESSES)
        context = MKC.pack({"qpn": ANY_PAIR, "pd": pdn, "key": low, "translations": units} | values)
        data = CREATE_MKEY.pack(translations=units)
        data[ENTRY : ENTRY + MKC.size] = context
        listed = b"".join(page.to_bytes(8, "big") for page in pages)
        listed = listed.ljust(8 * _ADDRESSES * units, b"\0")
        self._index = self._commands.make(Opcode.CREATE_MKEY, bytes(data) + listed)
        self._key = self._index << 8 | low

    def _end(self) -> None:
        self._commands.run(Opcode.DESTROY_MKEY, number=self._index)


class Mr(Key):
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
        values: dict[str, Value] = {
            **key_rights(access), "access_mode": AccessMode.MTT,
            "start": iova, "length": length, "log_page_size": shift,
        }  # fmt: skip
        super().__init__(adapter, pdn, values, pages)


class DmaMr(Key):
    """A region over all of memory: the IOVA is the DMA address."""

    def __init__(self, adapter: Adapter, pdn: int, access: AccessFlags | int) -> None:
        values = {**key_rights(access), "access_mode": AccessMode.PHYSICAL, "length64": 1}
        super().__init__(adapter, pdn, values)


class FastRegMr(FastRegistration, Key):
    """A region of up to `max_pages` pages that work requests fill.

    `list_key` is the local key for the lists of pages (ib/wr.c: set_reg_data_seg).
    """

    def __init__(self, adapter: Adapter, pdn: int, max_pages: int) -> None:
        self.list_key = adapter.local_dma_lkey
        self._make_list(adapter.bus, max_pages)
        values: dict[str, Value] = {
            "free": 1, "umr": 1, "access_mode": AccessMode.MTT, "may_invalidate": 1,
            "log_page_size": 12, "translations": -(-max_pages // _ADDRESSES),
        }  # fmt: skip
        with ExitStack() as undo:
            undo.callback(self.page_list.free)
            super().__init__(adapter, pdn, values)
            undo.pop_all()


def key_rights(access: AccessFlags | int) -> dict[str, Value]:
    """Return what access flags allow as fields of a context."""
    return {_NAMES.get(name, name): value for name, value in rights(access).items()}
