"""Memory protection and translation: every byte the device moves is checked here.

An MPT entry says who may reach which addresses of an MR, the MTT where they are. Rules: section
10.6 of the InfiniBand specification, Linux `mlx4/mr.c` and `ib/mr.c` for the encoding.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.capabilities import RESERVED_LKEY
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import MPT_SIZE, MPT_STATUS_SOFTWARE
from bluebridge.device.mlx4.memory.icm import MTT_ENTRY, Icm, IcmError
from bluebridge.device.mlx4.memory.protection_entry import (
    ALL_RIGHTS,
    EVERYTHING,
    KEY_INDEX_MASK,
    PD_MASK,
    REMOTE_CHANGES,
    AccessError,
    Rights,
    hardware_key,
    region_of_entry,
)
from bluebridge.device.mlx4.memory.region import MemoryRegion, pages_of
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.pci.bus import Run

PAGE_SHIFTS: Final = range(12, 32)
SOFTWARE_OWNED: Final = bytes((MPT_STATUS_SOFTWARE << 4,))
PORTION_PAGES: Final = 1 << 14
"""Pages of an MR that are looked at in one turn of the loop: a millisecond or two."""
ENTRY_PAGES: Final = 1 << 7
"""Pages that take as long as reading one entry of the dMPT table."""
MAX_PAGES: Final = 1 << 20
"""Pages of one MR: 4 GiB in the smallest ones, which are what a driver falls back to."""
MAX_PIECES = 1 << 22
"""Pieces of memory that are no neighbours, over all MRs: 64 MiB of the server's memory."""
MAX_RETURNED: Final = 1024
"""Entries given back lately, which SYNC_TPT looks at: re-registration does both in a row."""


class MemoryRegions:
    """The MPT table of one HCA."""

    def __init__(self, icm: Icm, parameters: Parameters) -> None:
        self._icm = icm
        self._parameters = parameters
        self._regions: dict[int, MemoryRegion] = {}
        self._returned: dict[int, None] = {}  # indices, oldest first
        self._owned: dict[int, set[int]] = {}  # windows of type 2 by the queue pair that bound them
        self._pieces = 0

    def reset(self) -> None:
        """Forget every MR."""
        self._regions.clear()
        self._returned.clear()
        self._owned.clear()
        self._pieces = 0

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, index: int) -> bool:
        return index in self._regions

    def numbers(self) -> list[int]:
        """The indices of all entries, oldest first."""
        return list(self._regions)

    def get(self, index: int) -> MemoryRegion | None:
        """The entry with this index, if hardware owns it."""
        return self._regions.get(index)

    def index_of(self, key: int) -> int:
        """Index in the MPT table that a key names."""
        return key >> 8 & (1 << self._parameters.log_mpts) - 1

    # -- the guest's side: commands ---------------------------------------------------------

    def create(self, index: int, entry: bytes) -> Iterator[None]:
        """SW2HW_MPT: check an MPT entry, copy its translation, mirror it into the dMPT table.

        In portions: others have their turns in between.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE when hardware owns the entry already,
        BAD_PARAM, ICM_ERROR, EXCEED_LIM.
        """
        if index >> self._parameters.log_mpts:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        if index in self._regions:
            raise CommandError(Status.BAD_RES_STATE, f"MPT {index:#x} is in use")
        region = region_of_entry(index, entry, self._parameters.log_mpts)
        yield from self._load_pages(region)
        self._mirror(region, b"\0")
        self._returned.pop(index, None)
        self._regions[index] = region
        self._pieces += region.pieces

    def destroy(self, index: int) -> None:
        """HW2SW_MPT: the entry goes back to software.

        Raises `CommandError` (REG_BOUND) for an MR with windows, the one failure drivers expect.
        """
        region = self._regions.get(index)
        if region is None:
            return
        if region.windows:
            raise CommandError(Status.REG_BOUND, f"MPT {index:#x}: {region.windows} windows")
        self._release(region)
        del self._regions[index]
        try:
            self._mirror(region, SOFTWARE_OWNED)
        except IcmError:
            return  # SYNC_TPT cannot hand back an entry that is not in memory
        self._returned[index] = None
        if len(self._returned) > MAX_RETURNED:
            del self._returned[next(iter(self._returned))]

    def synchronise(self) -> Iterator[None]:
        """SYNC_TPT: entries that software edited in the dMPT table and gave back become valid.

        In portions.

        Linux `mlx4/mr.c: mlx4_mr_hw_write_mpt`; used by re-registration of user MRs only.
        """
        pages = turn = 0
        for index in list(self._returned):
            if pages > MAX_PAGES:  # no driver gives back so much at once; the rest is forgotten
                self._returned.clear()
                return
            if turn >= PORTION_PAGES:
                turn = 0
                yield
            looked_at = yield from self._take_over(index)
            pages += looked_at
            turn += looked_at + ENTRY_PAGES

    def _take_over(self, index: int) -> Generator[None, None, int]:
        """An entry that was given back becomes valid, if software is done with it.

        Returns the pages that were looked at.
        """
        try:
            entry = self._icm.read(self._home(index), MPT_SIZE, What.MPT, index)
            if entry[0]:
                return 0  # still software's
            region = region_of_entry(index, entry, self._parameters.log_mpts)
            yield from self._load_pages(region)
        except CommandError:
            del self._returned[index]
            return MAX_PAGES // 16  # it may have failed after all of them
        del self._returned[index]
        self._regions[index] = region
        self._pieces += region.pieces
        return region.mapped >> region.page_shift

    def query(self, index: int) -> bytes:
        """QUERY_MPT: the entry as it stands."""
        region = self._regions.get(index)
        if region is None:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        return bytes(region.entry)

    def _home(self, index: int) -> int:
        return self._parameters.dmpt_base + index * MPT_SIZE

    def _mirror(self, region: MemoryRegion, first: bytes) -> None:
        image = first + bytes(region.entry[1:])
        self._icm.write(self._home(region.index), image, What.MPT, region.index)

    def _load_pages(self, region: MemoryRegion) -> Iterator[None]:
        """Copy the translation of an MR that has one; raises `CommandError`."""
        if region.window or region.physical or region.free:
            return
        if region.page_shift not in PAGE_SHIFTS:
            raise CommandError(Status.BAD_PARAM, f"page shift {region.page_shift}")
        if region.start + region.length > 1 << 64:
            raise CommandError(Status.BAD_PARAM, "the region wraps around")
        count = pages_of(region.start, region.length, region.page_shift)
        if count > MAX_PAGES:
            raise CommandError(Status.EXCEED_LIM, f"an MR of {count} pages")
        region.set_pages(array("Q"), region.page_shift)
        mtt = region.mtt_addr & -MTT_ENTRY
        self._icm.runs(self._parameters.mtt_base + mtt, count * MTT_ENTRY)
        for first in range(0, count, PORTION_PAGES):
            if first:
                yield
            portion = min(PORTION_PAGES, count - first)
            region.add_pages(self._icm.read_mtt(mtt + first * MTT_ENTRY, portion))
            if self._pieces + region.pieces > MAX_PIECES:
                raise CommandError(Status.EXCEED_LIM, f"MRs of more than {MAX_PIECES} pieces")

    def _release(self, region: MemoryRegion) -> None:
        """The translation goes, or what a window is bound to."""
        self._pieces -= region.pieces
        if region.owner_qpn in self._owned:
            self._owned[region.owner_qpn].discard(region.index)
        region.unbind()

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
        qpn: int = 0,
    ) -> Sequence[Run]:
        """Where `length` bytes at `va` of the MR `key` are; raises `AccessError`.

        `access` are the `Rights` needed, `pd` the PD of the queue pair. Zero bytes touch nothing
        and pass without a check. `reserved_lkey_ok`: the queue pair may use the reserved lkey,
        which is guest-physical memory of any PD. `qpn` is whose peer asks, which matters to
        windows of type 2. Runs may still lie outside of guest memory when
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
        if region.owner_qpn and region.owner_qpn != qpn:
            raise AccessError(f"window {key:#x} is bound to QP {region.owner_qpn:#x}")
        if access & ~region.rights:
            raise AccessError(f"key {key:#x} lacks {Rights(access & ~region.rights)!r}")
        if va < region.start or va + length > region.start + region.length:
            raise AccessError(f"{va:#x}+{length:#x} is outside of key {key:#x}")
        return region.translate(va, length)

    def is_everything(self, key: int, access: int, pd: int) -> bool:
        """Whether a key gives all of guest memory under its own addresses: `resolve` adds nothing.

        Drivers in the kernel have such an MR for their rings' buffers.
        """
        region = self._regions.get(self.index_of(key))
        return (
            region is not None
            and region.physical
            and region.key == hardware_key(key)
            and region.pd == pd & PD_MASK
            and not access & ~region.rights
            and not region.free
            and not region.owner_qpn
            and not region.start
            and region.length >= EVERYTHING
        )

    def _valid(self, key: int, pd: int) -> MemoryRegion:
        region = self._regions.get(self.index_of(key))
        if region is None or region.key != hardware_key(key):
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
        if region is None or not region.fast:
            raise AccessError(f"key {key:#x} is no fast-registration MR")
        if (region.key ^ hardware_key(key)) & KEY_INDEX_MASK:
            raise AccessError(f"key {key:#x} has another index than its MR")
        if region.pd != pd & PD_MASK:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        if not region.free:
            raise AccessError(f"key {key:#x} is still registered")
        if rights & REMOTE_CHANGES and not rights & Rights.LOCAL_WRITE:
            raise AccessError(f"key {key:#x} would be writable for peers only")
        needed = pages_of(start, length, page_shift)
        if page_shift not in PAGE_SHIFTS or start + length > 1 << 64 or not length:
            raise AccessError(f"{start:#x}+{length:#x} with page shift {page_shift} is no region")
        if needed > region.max_pages or len(pages) < needed:
            raise AccessError(f"{needed} pages, the MR has room for {region.max_pages}")
        if self._pieces + needed > MAX_PIECES:
            raise AccessError(f"MRs of more than {MAX_PIECES} pieces")
        region.key, region.start, region.length = hardware_key(key), start, length
        region.set_pages(pages[:needed], page_shift)
        self._pieces += region.pieces
        region.rights, region.free = int(rights) & ALL_RIGHTS, False

    def find(self, key: int) -> MemoryRegion | None:
        """The MR or window that a key, whatever its low byte, names; None without one."""
        region = self._regions.get(self.index_of(key))
        if region is None or (region.key ^ hardware_key(key)) & KEY_INDEX_MASK:
            return None
        return region

    def own(self, window: MemoryRegion, qpn: int) -> None:
        """Only the peer of this queue pair may use `window` from now on."""
        window.owner_qpn = qpn
        self._owned.setdefault(qpn, set()).add(window.index)

    def forget_queue_pair(self, qpn: int) -> None:
        """A queue pair is gone: windows that only its peer could use are free again.

        Another one may get its number.
        """
        for index in self._owned.pop(qpn, ()):
            window = self._regions[index]
            window.unbind()
            window.free = True

    def invalidate(self, key: int, pd: int, *, qpn: int = 0, remote: bool = False) -> None:
        """LOCAL_INV or SEND_WITH_INV: the MR or window is free again; raises `AccessError`.

        The owner may invalidate an MR that is free: krping in the kernel posts LOCAL_INV in front
        of its very first registration. A peer may not.
        """
        region = self._valid(key, pd)
        if not region.may_invalidate:
            raise AccessError(f"key {key:#x} may not be invalidated")
        if region.free and remote:
            raise AccessError(f"key {key:#x} is not registered")
        if region.windows:
            raise AccessError(f"key {key:#x} has {region.windows} windows")
        if region.owner_qpn and region.owner_qpn != qpn:
            raise AccessError(f"window {key:#x} is bound to QP {region.owner_qpn:#x}")
        region.free = True
        self._release(region)
