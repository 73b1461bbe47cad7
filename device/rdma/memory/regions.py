"""Memory protection and translation: every byte the device moves is checked here.

A region says who may reach which addresses, its pages where they are (InfiniBand vol. 1, 10.6). A
window opens a part of a region to peers under a key of its own (10.6.7). One of type 1 may be bound
again at any time, one of type 2 only while it is free, and then only the peer of the queue pair
that bound it may use it (type 2B).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import Final, NamedTuple

from bluebridge.device.pci.bus import Run
from bluebridge.device.rdma.memory.region import (
    ALL_RIGHTS,
    CHANGES,
    EVERYTHING,
    NOWHERE,
    REMOTE_CHANGES,
    AbsentError,
    AccessError,
    MemoryRegion,
    Part,
    Rights,
    pages_of,
)
from bluebridge.device.refusal import Reason, Refusal

KEY_BYTE: Final = 8
"""Number of low bits of a key that software may choose."""
INDEX_BITS: Final = 24
"""Number of bits of a key above them."""
MAX_DEPTH: Final = 4
"""Most indirect regions on the way from a key to memory."""
MAX_RUNS: Final = 1 << 14
"""Most runs of one access through indirect regions: each may name a thousand others."""
MAX_PIECES = 1 << 22
"""Most separate pieces of memory in all MRs together: 64 MiB of the server's memory."""


PageReader = Callable[[int], Sequence[int]]


class Registration(NamedTuple):
    """A fast registration: `length` bytes from `start` on become accessible by `key`.

    `pages` returns the first so many guest-physical addresses of its list of pages, and is called
    once, after all checks: the list may be in memory that software reuses afterwards, and be
    shorter than a bad length says. `offset` is where the region begins in its first page, if it
    does not begin where `start` says.
    """

    key: int
    start: int
    length: int
    offset: int
    page_shift: int
    rights: int
    pages: PageReader


class Field(IntFlag):
    """The fields of a region that `MemoryRegions.update` may change."""

    KEY = 1 << 0
    DOMAIN = 1 << 1
    RIGHTS = 1 << 2
    START = 1 << 3
    LENGTH = 1 << 4
    FREE = 1 << 5


REGISTERED: Final = Field.KEY | Field.RIGHTS | Field.START | Field.LENGTH | Field.FREE
"""The fields that a fast registration sets."""


class Values(NamedTuple):
    """The new values of fields; those that a mask does not name have no meaning."""

    key: int = 0
    pd: int = 0
    rights: int = 0
    start: int = 0
    length: int = 0
    free: bool = False


class Entries(NamedTuple):
    """New entries of a translation: `parts`, or pages of `1 << page_shift` bytes.

    `pages` is called once for `most` of these, for as many as the region needs where that is -1.
    `lent`: some may be `NOWHERE`, or have `READ_ONLY` in their addresses. Parts with `repeats` are
    behind each other so many times, and their list has an entry more that says so.
    """

    page_shift: int = 0
    pages: PageReader | None = None
    most: int = -1
    parts: Sequence[Part] = ()
    lent: bool = False
    repeats: int = 0


class MemoryRegions:
    """The regions and windows of one adapter, by the index in the upper 24 bits of their keys.

    Software may change the low byte with each use of a key. A face whose table is smaller lets keys
    alias: `index_mask` has the bits of the index that count. `pd_bits` are the bits of a
    protection domain that the adapter compares, and `reserved_lkey` is the key of all guest
    memory, for queue pairs that may use it. Work requests may register up to `most_pages` pages of
    `page_shifts` (logarithms of bytes) at once. Parts of `absent_key` are absent.
    """

    def __init__(
        self,
        *,
        reserved_lkey: int,
        pd_bits: int,
        page_shifts: range,
        most_pages: int,
        absent_key: int = -1,
    ) -> None:
        self.index_mask = (1 << INDEX_BITS) - 1
        self._page_shifts = page_shifts
        self.most_pages = most_pages
        self._reserved_lkey = reserved_lkey
        self._absent_key = absent_key
        self._pd_mask = (1 << pd_bits) - 1
        self._regions: dict[int, MemoryRegion] = {}
        self._domains: Counter[int] = Counter()  # how many regions are in each
        self._owned: dict[int, set[int]] = {}  # windows of type 2 by the queue pair that bound them
        self._pieces = 0

    def reset(self) -> None:
        """Forget every MR."""
        self._regions.clear()
        self._domains.clear()
        self._owned.clear()
        self._pieces = 0

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, index: int) -> bool:
        return index in self._regions

    def numbers(self) -> list[int]:
        """The indices of all regions and windows, oldest first."""
        return list(self._regions)

    def get(self, index: int) -> MemoryRegion | None:
        """Return the region or window with this index; None unless hardware owns it."""
        return self._regions.get(index)

    def in_domain(self, pd: int) -> bool:
        """Return whether a region or window is in protection domain `pd`."""
        return self._domains[pd & self._pd_mask] > 0

    def index_of(self, key: int) -> int:
        """Return the index that a key names."""
        return key >> 8 & self.index_mask

    def domain_of(self, pd: int) -> int:
        """Return the number that regions in protection domain `pd` have."""
        return pd & self._pd_mask

    # -- the tables of software -------------------------------------------------------------

    def add(self, region: MemoryRegion) -> None:
        """Make a region or window valid; its index must not be in use."""
        self._regions[region.index] = region
        self._domains[region.pd] += 1
        self._pieces += region.pieces

    def remove(self, index: int) -> MemoryRegion | None:
        """Take a region or window away and return it; None where there is none.

        Raises `Refusal` (BOUND) for an MR with windows.
        """
        region = self._regions.get(index)
        if region is None:
            return None
        if region.windows:
            raise Refusal(Reason.BOUND, f"{region.windows} windows")
        self._release(region)
        self._leave_domain(region)
        del self._regions[index]
        return region

    def check_room(self, region: MemoryRegion) -> None:
        """Raise `Refusal` (LIMIT) when `region` has more pieces than there is room for."""
        if self._pieces + region.pieces > MAX_PIECES:
            raise Refusal(Reason.LIMIT, f"MRs of more than {MAX_PIECES} pieces")

    def _leave_domain(self, region: MemoryRegion) -> None:
        """Count a region less in its protection domain."""
        self._domains[region.pd] -= 1
        if not self._domains[region.pd]:
            del self._domains[region.pd]

    def _release(self, region: MemoryRegion) -> None:
        """Release a region's translation, or what a window is bound to."""
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
        """Return where `length` bytes at `va` of the MR `key` are; raises `AccessError`.

        `access` are the `Rights` needed, `pd` the PD of the queue pair. Zero bytes touch nothing
        and pass without a check. `reserved_lkey_ok`: the queue pair may use the reserved lkey,
        which is guest-physical memory of any PD. `qpn` is whose peer asks, which matters to
        windows of type 2. Runs may still lie outside of guest memory when
        the MR is physical.
        """
        if not length:
            return []
        if key == self._reserved_lkey:
            if not reserved_lkey_ok or va + length > 1 << 64:
                raise AccessError("the reserved lkey is not for this queue pair")
            return [(va, length)]
        region = self._permitted(key, va, length, access, pd, qpn)
        if region.direct:
            return region.translate(va, length)
        return self._follow(region, va, length, access, pd, 0)

    def _permitted(
        self, key: int, va: int, length: int, access: int, pd: int, qpn: int
    ) -> MemoryRegion:
        """Return the region that permits an access; raises `AccessError`."""
        region = self._valid(key, pd)
        if region.free:
            raise AccessError(f"key {key:#x} is not registered")
        if region.owner_qpn and region.owner_qpn != qpn:
            raise AccessError(f"window {key:#x} is bound to QP {region.owner_qpn:#x}")
        if access & ~region.rights:
            raise AccessError(f"key {key:#x} lacks {Rights(access & ~region.rights).name}")
        if va < region.start or va + length > region.start + region.length:
            raise AccessError(f"{va:#x}+{length:#x} is outside of key {key:#x}")
        return region

    def _follow(
        self, region: MemoryRegion, va: int, length: int, access: int, pd: int, depth: int
    ) -> Sequence[Run]:
        """Return where bytes of a region are that is not direct.

        The key of the access permits it to the peer, those behind it to their owner.
        """
        if not region.part_keys:
            return region.lent_at(va, length, changes=bool(access & CHANGES))
        if depth >= MAX_DEPTH:
            raise AccessError(f"key {region.key:#x} is behind {MAX_DEPTH} others")
        found: list[Run] = []
        for key, address, size, _ in region.parts_at(va, length):
            if key == self._absent_key:
                raise AbsentError(region.key, va)
            inner = self._permitted(key, address, size, _local(access), pd, 0)
            if inner.direct:
                found += inner.translate(address, size)
            else:
                found += self._follow(inner, address, size, access, pd, depth + 1)
            if len(found) > MAX_RUNS:
                raise AccessError(f"key {region.key:#x} has more than {MAX_RUNS} runs there")
        return found

    def is_everything(self, key: int, access: int, pd: int) -> bool:
        """Return True if a key gives all of guest memory under its own addresses.

        Drivers in the kernel have such an MR for their rings' buffers.
        """
        region = self._regions.get(self.index_of(key))
        return (
            region is not None
            and region.physical
            and region.key == key
            and region.pd == pd & self._pd_mask
            and not access & ~region.rights
            and not region.free
            and not region.owner_qpn
            and region.direct
            and not region.start
            and region.length >= EVERYTHING
        )

    def _valid(self, key: int, pd: int) -> MemoryRegion:
        region = self._regions.get(key >> 8 & self.index_mask)
        if region is None or region.key != key:
            raise AccessError(f"key {key:#x} is not valid")
        if region.pd != pd & self._pd_mask:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        return region

    def fast_register(self, wanted: Registration, pd: int) -> None:
        """Make a free fast-registration MR valid (REG_MR) under a key whose low byte is new.

        Raises `AccessError`, `DmaError`.
        """
        if wanted.offset:
            raise AccessError(f"key {wanted.key:#x} would begin {wanted.offset:#x} bytes later")
        values = Values(
            key=wanted.key, rights=wanted.rights, start=wanted.start, length=wanted.length
        )
        entries = Entries(wanted.page_shift, wanted.pages)
        self.update(wanted.key, REGISTERED, values, entries, pd=pd, must_be_free=True)

    def update(
        self,
        key: int,
        mask: int,
        values: Values,
        entries: Entries | None = None,
        at: int = 0,
        *,
        pd: int | None = None,
        must_be_free: bool = False,
    ) -> None:
        """Change the `Field`s in `mask` of a region, and its translation from entry `at` on.

        The low byte of `key` does not count. The region has to be one that work requests may
        change, in the protection domain `pd` unless that is None, and with `must_be_free` one that
        is not registered. Pages that nothing was said about are absent. Raises `AccessError` and
        `DmaError`, and has changed nothing then.
        """
        region = self.changeable(key, pd, must_be_free)
        start = values.start if mask & Field.START else region.start
        length = values.length if mask & Field.LENGTH else region.length
        rights = values.rights if mask & Field.RIGHTS else region.rights
        # Rights of peers to change memory need that of its owner (ibv_reg_mr(3)).
        if rights & REMOTE_CHANGES and not rights & Rights.LOCAL_WRITE:
            raise AccessError(f"key {key:#x} would be writable for peers only")
        if entries is None:
            free = values.free if mask & Field.FREE else region.free
            if start + length > 1 << 64 or not (free or _reaches(region, start, length)):
                raise AccessError(f"{start:#x}+{length:#x} is no region")
            self._set(region, mask, values)
        elif entries.pages is None:
            self._check_parts(region, entries, at)
            if at and mask & Field.FREE and values.free:
                raise AccessError(f"key {key:#x} becomes free, nothing is kept of its list")
            self._set(region, mask, values)
            self._pieces -= region.pieces
            region.put_parts(entries.parts, at, entries.repeats)
            self._pieces += region.pieces
        else:
            self._update_pages(region, mask, values, (start, length), entries, at)

    def _update_pages(
        self,
        region: MemoryRegion,
        mask: int,
        values: Values,
        bounds: tuple[int, int],
        entries: Entries,
        at: int,
    ) -> None:
        """Set fields of a region and entries of its list of pages, whose `bounds` are new.

        One that may have absent pages stays such a one, and only what is new of its list is looked
        at: pages come one by one, and the list may have a million.
        """
        lent, read, count = region.lent, entries.pages, entries.most
        if (
            lent and read is not None and not mask & (Field.START | Field.LENGTH)
            and entries.page_shift == region.page_shift and 0 <= count <= len(lent) - at
        ):  # fmt: skip
            new = array("Q", read(count))
            self._set(region, mask, values)
            if region.lent is lent:  # else it became free
                lent[at : at + count] = new
            return
        pages = self._pages(region, bounds[0], bounds[1], entries, at)
        self._set(region, mask, values)
        self._pieces -= region.pieces
        region.set_pages(pages, entries.page_shift, lent=entries.lent or NOWHERE in pages)
        self._pieces += region.pieces

    def changeable(self, key: int, pd: int | None, must_be_free: bool) -> MemoryRegion:
        """Return the region that a work request may change, as `update` says.

        Raises `AccessError`.
        """
        region = self._regions.get(self.index_of(key))
        if region is None or not region.fast:
            raise AccessError(f"key {key:#x} is no fast-registration MR")
        if (region.key ^ key) >> KEY_BYTE:
            raise AccessError(f"key {key:#x} has another index than its MR")
        if pd is not None and region.pd != pd & self._pd_mask:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        if must_be_free and not region.free:
            raise AccessError(f"key {key:#x} is still registered")
        if region.windows:
            raise AccessError(f"key {key:#x} has {region.windows} windows")
        return region

    def _pages(
        self, region: MemoryRegion, start: int, length: int, entries: Entries, at: int
    ) -> Sequence[int]:
        """Return the pages of a region when `entries` have been put into its list from `at` on."""
        shift, read = entries.page_shift, entries.pages
        if shift not in self._page_shifts or not length or start + length > 1 << 64:
            raise AccessError(f"{start:#x}+{length:#x} with page shift {shift} is no region")
        needed = pages_of(start, length, shift)
        if needed > min(region.max_pages, self.most_pages):
            raise AccessError(f"{needed} pages, the MR has room for {region.max_pages}")
        if self._pieces + needed > MAX_PIECES:
            raise AccessError(f"MRs of more than {MAX_PIECES} pieces")
        count = needed - at if entries.most < 0 else entries.most
        if read is None or count < 0 or at + count > needed:
            raise AccessError(f"{count} entries from {at} on, the MR has {needed}")
        if count == needed:
            return read(count)
        kept = region.page_list() if region.page_shift == shift else []
        pages = (kept + [NOWHERE] * needed)[:needed]
        new = read(count)
        # Beside absent pages the low bits of an address say what is lent.
        pages[at : at + count] = new if entries.lent else [page >> shift << shift for page in new]
        return pages

    def _check_parts(self, region: MemoryRegion, entries: Entries, at: int) -> None:
        """Raise `AccessError` unless parts may be put into the list of a region from `at` on."""
        parts, count = entries.parts, len(region.part_keys)
        needed = at + len(parts) + (entries.repeats > 0)
        if at > count or needed > min(region.max_pages, self.most_pages):
            raise AccessError(f"{len(parts)} entries from {at} on, the MR has {count}")
        if at and (entries.repeats or region.cycle):
            raise AccessError(f"entries from {at} on of a list that repeats")
        if any(part.length <= 0 for part in parts):
            raise AccessError(f"key {region.key:#x} has a part of no length")
        if self._pieces + len(parts) > MAX_PIECES:
            raise AccessError(f"MRs of more than {MAX_PIECES} pieces")

    def _set(self, region: MemoryRegion, mask: int, values: Values) -> None:
        """Set the fields that `mask` names; a region that becomes free loses its translation."""
        if mask & Field.KEY:
            region.key = values.key
        if mask & Field.DOMAIN:
            self._leave_domain(region)
            region.pd = values.pd & self._pd_mask
            self._domains[region.pd] += 1
        if mask & Field.RIGHTS:
            region.rights = values.rights & ALL_RIGHTS
        if mask & Field.START:
            region.start = values.start
            region.origin = _origin(region, values.start)
        if mask & Field.LENGTH:
            region.length = values.length
        if mask & Field.FREE:
            region.free = values.free
            if values.free:
                self._release(region)

    def find(self, key: int) -> MemoryRegion | None:
        """Return the MR or window that a key names, whatever its low byte is; None without one."""
        region = self._regions.get(self.index_of(key))
        if region is None or (region.key ^ key) >> KEY_BYTE:
            return None
        return region

    def own(self, window: MemoryRegion, qpn: int) -> None:
        """Let only the peer of queue pair `qpn` use `window` from now on; all peers for 0."""
        if window.owner_qpn in self._owned:
            self._owned[window.owner_qpn].discard(window.index)
        window.owner_qpn = qpn
        if qpn:
            self._owned.setdefault(qpn, set()).add(window.index)

    def forget_queue_pair(self, qpn: int) -> None:
        """Free the windows that only the peer of queue pair `qpn`, which is gone, could use.

        Another queue pair may get the same number.
        """
        for index in self._owned.pop(qpn, ()):
            window = self._regions[index]
            self._release(window)
            window.free = True

    def invalidate(self, key: int, pd: int, *, qpn: int = 0, remote: bool = False) -> None:
        """Free an MR or window for LOCAL_INV or SEND_WITH_INV; raises `AccessError`.

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
        self._set(region, Field.FREE, Values(free=True))


def _local(access: int) -> int:
    """Return the rights that an access through another key needs of the key behind that."""
    read = access & (Rights.LOCAL_READ | Rights.REMOTE_READ | Rights.REMOTE_ATOMIC)
    return (Rights.LOCAL_READ if read else 0) | (Rights.LOCAL_WRITE if access & CHANGES else 0)


def _origin(region: MemoryRegion, start: int) -> int:
    """Return where the translation of a region begins that begins at `start`."""
    return start if region.part_keys else start >> region.page_shift << region.page_shift


def _reaches(region: MemoryRegion, start: int, length: int) -> bool:
    """Return True if a translation reaches that far; that of parts is asked at each access."""
    if region.physical or region.part_keys or not length:
        return True
    return start - _origin(region, start) + length <= region.mapped


class Binding(NamedTuple):
    """A bind request: `length` bytes of the MR `lkey` from `va` on become accessible by `rkey`."""

    rkey: int
    lkey: int
    va: int
    length: int
    rights: int
    second_type: bool
    zero_based: bool


def bind(regions: MemoryRegions, wanted: Binding, *, pd: int, qpn: int) -> None:
    """Carry out a bind request of queue pair `qpn` in protection domain `pd`.

    Raises `AccessError`, and nothing has changed then. A length of zero unbinds a window of type 1.
    """
    window = _window(regions, wanted.rkey, pd, second_type=wanted.second_type)
    if wanted.length:
        parent = _parent(regions, wanted, pd)
        window.bind(parent, wanted.va, wanted.length, zero_based=wanted.zero_based)
        window.rights = wanted.rights
    elif wanted.second_type:
        raise AccessError(f"window {wanted.rkey:#x} of no length")
    else:
        window.unbind()
    window.key = wanted.rkey
    window.free = False
    if wanted.second_type:
        regions.own(window, qpn)


def _window(regions: MemoryRegions, rkey: int, pd: int, *, second_type: bool) -> MemoryRegion:
    """Return the window that is to be bound under `rkey`, whose low byte is new."""
    window = regions.find(rkey)
    if window is None or not window.window or window.second_type != second_type:
        raise AccessError(f"key {rkey:#x} is no window of type {1 + second_type}")
    if window.pd != regions.domain_of(pd):
        raise AccessError(f"window {rkey:#x} belongs to PD {window.pd}, not {pd}")
    if second_type and not window.free:
        raise AccessError(f"window {rkey:#x} is still bound")
    return window


def _parent(regions: MemoryRegions, wanted: Binding, pd: int) -> MemoryRegion:
    """Return the MR that a window is to be bound to, if it permits the rights of the window."""
    lkey, rights, va, length = wanted.lkey, wanted.rights, wanted.va, wanted.length
    parent = regions.find(lkey)
    if parent is None or parent.window or parent.free or parent.key != lkey:
        raise AccessError(f"key {lkey:#x} is no memory region")
    if parent.pd != regions.domain_of(pd):
        raise AccessError(f"key {lkey:#x} belongs to PD {parent.pd}, not {pd}")
    needed = int(Rights.BIND_WINDOW)
    if rights & (Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC):
        needed |= Rights.LOCAL_WRITE
    if needed & ~parent.rights:
        raise AccessError(f"key {lkey:#x} lacks {Rights(needed & ~parent.rights).name}")
    if va < parent.start or va + length > parent.start + parent.length:
        raise AccessError(f"{va:#x}+{length:#x} is outside of key {lkey:#x}")
    return parent
