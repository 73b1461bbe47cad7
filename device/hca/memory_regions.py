"""Memory protection and translation: every byte the device moves is checked here.

An MPT entry says who may reach which addresses of an MR, the MTT where they are. Rules: section
10.6 of the InfiniBand specification, Linux `mlx4/mr.c` and `ib/mr.c` for the encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import TYPE_CHECKING

from device.hca.command import CommandError, Status
from device.hca.icm import IcmError
from device.hca.memory_region import MemoryRegion, pages_of
from device.layout.buslog import What
from device.layout.mlx4.capabilities import RESERVED_LKEY
from device.layout.mlx4.contexts import MPT, MPT_SIZE, MPT_STATUS_FREE, MPT_STATUS_SOFTWARE
from device.pci.bus import Run

if TYPE_CHECKING:
    from device.hca.device import Hca

PD_MASK = 0x1FFFF  # the MPT holds 17 bits of the PD number
PAGE_SHIFTS = range(12, 32)
SOFTWARE_OWNED = bytes((MPT_STATUS_SOFTWARE << 4,))
MAX_PAGES = 1 << 20
"""Pages of one MR: 4 GiB in the smallest ones, which are what a driver falls back to."""
MAX_PIECES = 1 << 22
"""Pieces of memory that are no neighbours, over all MRs: 64 MiB of the server's memory."""


class Rights(IntFlag):
    """What an MR permits; the values are the bits of the first MPT word."""

    LOCAL_READ = 1 << 10
    LOCAL_WRITE = 1 << 11
    REMOTE_READ = 1 << 12
    REMOTE_WRITE = 1 << 13
    REMOTE_ATOMIC = 1 << 14
    BIND_WINDOW = 1 << 15


ALL_RIGHTS = 0x3F << 10


class AccessError(Exception):
    """A key, range or right that does not hold; nothing was touched."""


def hardware_key(key: int) -> int:
    """The form an MPT stores a key in: rotated so that the index is in the low bits."""
    return key >> 8 | (key & 0xFF) << 24


def rights_of_fast_register(flags: int) -> Rights:
    """Rights from the flags word of a fast-registration segment (b27..b31)."""
    rights = Rights(0)
    for bit, right in (
        (27, Rights.LOCAL_READ),
        (28, Rights.LOCAL_WRITE),
        (29, Rights.REMOTE_READ),
        (30, Rights.REMOTE_WRITE),
        (31, Rights.REMOTE_ATOMIC),
    ):
        if flags >> bit & 1:
            rights |= right
    return rights


class MemoryRegions:
    """The MPT table of one HCA."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._regions: dict[int, MemoryRegion] = {}
        self._pieces = 0

    def reset(self) -> None:
        """Forget every MR."""
        self._regions.clear()
        self._pieces = 0

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, index: int) -> bool:
        return index in self._regions

    def index_of(self, key: int) -> int:
        """Index in the MPT table that a key names."""
        return key >> 8 & (1 << self._hca.parameters.log_mpts) - 1

    # -- the guest's side: commands ---------------------------------------------------------

    def create(self, index: int, entry: bytes) -> MemoryRegion:
        """SW2HW_MPT: check an MPT entry, copy its translation, mirror it into the dMPT table.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE when hardware owns the entry already,
        BAD_PARAM, ICM_ERROR, EXCEED_LIM.
        """
        if index >> self._hca.parameters.log_mpts:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        present = self._regions.get(index)
        if present is not None and not present.software:
            raise CommandError(Status.BAD_RES_STATE, f"MPT {index:#x} is in use")
        region = self._parse(index, entry)
        self._mirror(region, b"\0")
        self._regions[index] = region
        self._pieces += region.pieces
        return region

    def destroy(self, index: int) -> None:
        """HW2SW_MPT: the entry goes back to software. Closing commands never fail."""
        region = self._regions.get(index)
        if region is None:
            return
        region.software = True
        self._forget_pages(region)
        try:
            self._mirror(region, SOFTWARE_OWNED)
        except IcmError:
            del self._regions[index]  # nobody can hand it back with SYNC_TPT

    def synchronise(self) -> None:
        """SYNC_TPT: entries that software edited in the dMPT table and gave back become valid.

        Linux `mlx4/mr.c: mlx4_mr_hw_write_mpt`; used by re-registration of user MRs only.
        """
        for region in [region for region in self._regions.values() if region.software]:
            try:
                entry = self._hca.icm.read(
                    self._home(region.index), MPT_SIZE, What.MPT, region.index
                )
                if entry[0] == 0:
                    region = self._parse(region.index, entry)
                    self._regions[region.index] = region
                    self._pieces += region.pieces
            except CommandError:
                del self._regions[region.index]

    def query(self, index: int) -> bytes:
        """QUERY_MPT: the entry as it stands."""
        region = self._regions.get(index)
        if region is None:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        return bytes(region.entry)

    def _home(self, index: int) -> int:
        return self._hca.icm.dmpt_base + index * MPT_SIZE

    def _mirror(self, region: MemoryRegion, first: bytes) -> None:
        image = first + bytes(region.entry[1:])
        self._hca.icm.write(self._home(region.index), image, What.MPT, region.index)

    def _parse(self, index: int, entry: bytes) -> MemoryRegion:
        get = MPT.get
        shift = get(entry, "entity_size")
        region = MemoryRegion(
            index=index,
            entry=bytearray(entry[:MPT_SIZE]),
            key=get(entry, "key"),
            pd=get(entry, "pd"),
            rights=int.from_bytes(entry[:4], "big") & ALL_RIGHTS,
            start=get(entry, "start"),
            length=get(entry, "length"),
            page_shift=shift,
            physical=bool(get(entry, "physical")),
            fast=bool(get(entry, "fast_reg")),
            may_invalidate=bool(get(entry, "en_inv")),
            free=get(entry, "status") == MPT_STATUS_FREE,
            mtt_addr=get(entry, "mtt_addr"),
            max_pages=get(entry, "mtt_sz"),
        )
        mask = (1 << self._hca.parameters.log_mpts) - 1
        if region.key & mask != index:
            raise CommandError(
                Status.BAD_PARAM, f"key {region.key:#x} does not name MPT {index:#x}"
            )
        if not get(entry, "region"):
            raise CommandError(Status.BAD_PARAM, "memory windows are not supported")
        if not region.physical and not region.free:
            self._load_pages(region)
        return region

    def _load_pages(self, region: MemoryRegion) -> None:
        if region.page_shift not in PAGE_SHIFTS:
            raise CommandError(Status.BAD_PARAM, f"page shift {region.page_shift}")
        if region.start + region.length > 1 << 64:
            raise CommandError(Status.BAD_PARAM, "the region wraps around")
        count = pages_of(region.start, region.length, region.page_shift)
        if count > MAX_PAGES:
            raise CommandError(Status.EXCEED_LIM, f"an MR of {count} pages")
        region.set_pages(self._hca.icm.read_mtt(region.mtt_addr, count), region.page_shift)
        if self._pieces + region.pieces > MAX_PIECES:
            raise CommandError(Status.EXCEED_LIM, f"MRs of more than {MAX_PIECES} pieces")

    def _forget_pages(self, region: MemoryRegion) -> None:
        self._pieces -= region.pieces
        region.forget_pages()

    # -- the device's side: accesses and work requests ---------------------------------------

    def resolve(
        self,
        key: int,
        va: int,
        length: int,
        access: int,
        pd: int,
        *,
        reserved_lkey_ok: bool = False,
    ) -> list[Run]:
        """Where `length` bytes at `va` of the MR `key` are; raises `AccessError`.

        `access` are the `Rights` needed, `pd` the PD of the queue pair. Zero bytes touch nothing
        and pass without a check. `reserved_lkey_ok`: the queue pair may use the reserved lkey,
        which is guest-physical memory of any PD. Runs may still lie outside of guest memory when
        the MR is physical.
        """
        if not length:
            return []
        if key == RESERVED_LKEY:
            if not reserved_lkey_ok or va + length > 1 << 64:
                raise AccessError("the reserved lkey is not for this queue pair")
            return [(va, length)]
        region = self._valid(key, pd)
        if region.free:
            raise AccessError(f"key {key:#x} is not registered")
        if access & ~region.rights:
            raise AccessError(f"key {key:#x} lacks {Rights(access & ~region.rights)!r}")
        if va < region.start or va + length > region.start + region.length:
            raise AccessError(f"{va:#x}+{length:#x} is outside of key {key:#x}")
        return region.translate(va, length)

    def _valid(self, key: int, pd: int) -> MemoryRegion:
        region = self._regions.get(self.index_of(key))
        if region is None or region.software or region.key != hardware_key(key):
            raise AccessError(f"key {key:#x} is not valid")
        if region.pd != pd & PD_MASK:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        return region

    def fast_register(
        self,
        key: int,
        pd: int,
        start: int,
        length: int,
        page_shift: int,
        rights: int,
        pages: Sequence[int],
    ) -> None:
        """REG_MR: a free fast-registration MR becomes valid under `key`, whose low byte is new.

        `pages` are guest-physical addresses, one per page. Raises `AccessError`.
        """
        region = self._regions.get(self.index_of(key))
        if region is None or region.software or not region.fast:
            raise AccessError(f"key {key:#x} is no fast-registration MR")
        if (region.key ^ hardware_key(key)) & 0xFFFFFF:
            raise AccessError(f"key {key:#x} has another index than its MR")
        if region.pd != pd & PD_MASK:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        if not region.free:
            raise AccessError(f"key {key:#x} is still registered")
        needed = pages_of(start, length, page_shift)
        if page_shift not in PAGE_SHIFTS or start + length > 1 << 64 or not length:
            raise AccessError(f"{start:#x}+{length:#x} with page shift {page_shift} is no region")
        if needed > region.max_pages or len(pages) < needed:
            raise AccessError(f"{needed} pages, the MR has room for {region.max_pages}")
        if self._pieces + needed > MAX_PIECES:
            raise AccessError(f"MRs of more than {MAX_PIECES} pieces")
        region.set_pages(pages[:needed], page_shift)
        self._pieces += region.pieces
        region.key, region.start, region.length = hardware_key(key), start, length
        region.rights, region.free = int(rights) & ALL_RIGHTS, False

    def invalidate(self, key: int, pd: int, *, remote: bool = False) -> None:
        """LOCAL_INV or SEND_WITH_INV: the MR is free again; raises `AccessError`.

        The owner may invalidate an MR that is free: krping in the kernel posts LOCAL_INV in front
        of its very first registration. A peer may not.
        """
        region = self._valid(key, pd)
        if not region.may_invalidate:
            raise AccessError(f"key {key:#x} may not be invalidated")
        if region.free and remote:
            raise AccessError(f"key {key:#x} is not registered")
        region.free = True
        self._forget_pages(region)
