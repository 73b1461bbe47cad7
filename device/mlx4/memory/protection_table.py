"""The memory protection table (MPT): commands make regions from its entries and remove them.

An MPT entry says who may reach which addresses of an MR, the MTT where they are. Encoding: Linux
`mlx4/mr.c` and `ib/mr.c`.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import (
    MPT,
    MPT_SIZE,
    MPT_STATUS_FREE,
    MPT_STATUS_SOFTWARE,
    RIGHTS_SHIFT,
)
from bluebridge.device.mlx4.memory.icm import MTT_ENTRY, Icm, IcmError
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.rdma.memory.region import ALL_RIGHTS, EVERYTHING, MemoryRegion, pages_of
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.refusal import Refusal

PD_BITS: Final = 17
"""Number of bits of a protection domain's number that the MPT holds."""

SOFTWARE_OWNED: Final = bytes((MPT_STATUS_SOFTWARE << 4,))
PORTION_PAGES: Final = 1 << 14
"""Number of an MR's pages that one turn of the loop handles: a millisecond or two."""
ENTRY_PAGES: Final = 1 << 7
"""Number of pages that take as long as reading one entry of the dMPT table."""
PAGE_SHIFTS: Final = range(9, 32)
FAST_PAGES: Final = 511
"""Most pages of one fast registration: Linux `ib/main.c: max_fast_reg_page_list_len`."""
MAX_PAGES: Final = 1 << 20
"""Most pages of one MR: 4 GiB in the smallest ones, which are what a driver falls back to."""
MAX_RETURNED: Final = 1024
"""Most entries given back lately that SYNC_TPT looks at; re-registration does both in a row."""


def software_key(key: int) -> int:
    """Return a key as software knows it, from the form that an MPT stores."""
    return key << 8 & 0xFFFFFFFF | key >> 24


def region_of_entry(index: int, entry: bytes, log_mpts: int) -> MemoryRegion:
    """Return the MR or window of an entry, without its translation.

    Raises `CommandError` (BAD_PARAM).
    """
    get = MPT.get
    key = get(entry, "key")
    region = MemoryRegion(
        index=index,
        key=software_key(key),
        pd=get(entry, "pd"),
        rights=int.from_bytes(entry[:4], "big") >> RIGHTS_SHIFT & ALL_RIGHTS,
        start=get(entry, "start"),
        length=EVERYTHING if get(entry, "len64") else get(entry, "length"),
        page_shift=get(entry, "entity_size"),
        physical=bool(get(entry, "physical")),
        fast=bool(get(entry, "fast_reg")),
        may_invalidate=bool(get(entry, "en_inv")),
        free=get(entry, "status") == MPT_STATUS_FREE,
        max_pages=get(entry, "mtt_sz"),
        window=not get(entry, "region"),
        second_type=bool(get(entry, "bound_to_qp")),
    )
    if key & ((1 << log_mpts) - 1) != index:
        raise CommandError(Status.BAD_PARAM, f"key {key:#x} does not name MPT {index:#x}")
    if get(entry, "first_byte_offset") or get(entry, "mtt_rep"):
        raise CommandError(Status.BAD_PARAM, f"MPT {index:#x}: an offset or a repeated page list")
    if region.window:
        if region.fast or region.physical:
            raise CommandError(Status.BAD_PARAM, f"MPT {index:#x} is a window and an MR")
        region.rights = region.length = 0  # it shows nothing until it is bound
    return region


class ProtectionTable:
    """The MPT of one HCA: its entries as the guest wrote them, and the `regions` made from them."""

    def __init__(self, icm: Icm, parameters: Parameters, regions: MemoryRegions) -> None:
        self._icm = icm
        self._parameters = parameters
        self._regions = regions
        self._entries: dict[int, bytes] = {}
        self._returned: dict[int, None] = {}  # indices, oldest first

    def reset(self) -> None:
        """Forget every entry, and every MR."""
        self._regions.reset()
        self._entries.clear()
        self._returned.clear()

    def create(self, index: int, entry: bytes) -> Iterator[None]:
        """Check an MPT entry (SW2HW_MPT), copy its translation, write it to the dMPT table.

        In portions: others have their turns in between.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE when hardware owns the entry already,
        BAD_PARAM, ICM_ERROR, EXCEED_LIM.
        """
        if index >> self._parameters.log_mpts:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        if index in self._regions:
            raise CommandError(Status.BAD_RES_STATE, f"MPT {index:#x} is in use")
        region = region_of_entry(index, entry, self._parameters.log_mpts)
        yield from self._load_pages(region, entry)
        self._mirror(index, entry, b"\0")
        self._returned.pop(index, None)
        self._add(region, entry)

    def destroy(self, index: int) -> None:
        """Give an entry back to software (HW2SW_MPT).

        Raises `Refusal` (BOUND) for an MR with windows, the one failure drivers expect.
        """
        try:
            region = self._regions.remove(index)
        except Refusal as bound:
            raise Refusal(bound.reason, f"MPT {index:#x}: {bound.text}") from bound
        if region is None:
            return
        try:
            self._mirror(index, self._entries.pop(index), SOFTWARE_OWNED)
        except IcmError:
            return  # SYNC_TPT cannot hand back an entry that is not in memory
        self._returned[index] = None
        if len(self._returned) > MAX_RETURNED:
            del self._returned[next(iter(self._returned))]

    def synchronise(self) -> Iterator[None]:
        """Make entries valid that software gave back and edited in the dMPT table (SYNC_TPT).

        The work is done in portions. Linux `mlx4/mr.c: mlx4_mr_hw_write_mpt`; only re-registration
        of user MRs uses the command.
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
        """Make an entry that was given back valid, if software is done with it.

        Returns the pages that were looked at.
        """
        try:
            entry = self._icm.read(self._home(index), MPT_SIZE, What.MPT, index)
            if entry[0]:
                return 0  # still software's
            region = region_of_entry(index, entry, self._parameters.log_mpts)
            yield from self._load_pages(region, entry)
        except (CommandError, Refusal):
            del self._returned[index]
            return MAX_PAGES // 16  # it may have failed after all of them
        del self._returned[index]
        self._add(region, entry)
        return region.mapped >> region.page_shift

    def query(self, index: int) -> bytes:
        """Return the present entry (QUERY_MPT); raises `CommandError` (BAD_INDEX)."""
        entry = self._entries.get(index)
        if entry is None:
            raise CommandError(Status.BAD_INDEX, f"MPT {index:#x}")
        return entry

    def _add(self, region: MemoryRegion, entry: bytes) -> None:
        self._regions.add(region)
        self._entries[region.index] = entry[:MPT_SIZE]

    def _home(self, index: int) -> int:
        return self._parameters.dmpt_base + index * MPT_SIZE

    def _mirror(self, index: int, entry: bytes, first: bytes) -> None:
        self._icm.write(self._home(index), first + entry[1:MPT_SIZE], What.MPT, index)

    def _load_pages(self, region: MemoryRegion, entry: bytes) -> Iterator[None]:
        """Copy the translation of an MR that has one; raises `CommandError` and `Refusal`."""
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
        mtt = MPT.get(entry, "mtt_addr") & -MTT_ENTRY
        self._icm.runs(self._parameters.mtt_base + mtt, count * MTT_ENTRY)
        for first in range(0, count, PORTION_PAGES):
            if first:
                yield
            portion = min(PORTION_PAGES, count - first)
            region.add_pages(self._icm.read_mtt(mtt + first * MTT_ENTRY, portion))
            self._regions.check_room(region)
