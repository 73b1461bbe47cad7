"""Memory protection and translation: every byte the device moves is checked here.

A region says who may reach which addresses, its pages where they are (InfiniBand vol. 1, 10.6). A
window opens a part of a region to peers under a key of its own (10.6.7). One of type 1 may be bound
again at any time, one of type 2 only while it is free, and then only the peer of the queue pair
that bound it may use it (type 2B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bluebridge.device.pci.bus import Run
from bluebridge.device.rdma.memory.region import (
    ALL_RIGHTS,
    EVERYTHING,
    REMOTE_CHANGES,
    AccessError,
    MemoryRegion,
    Rights,
    pages_of,
)
from bluebridge.device.refusal import Reason, Refusal

KEY_BYTE: Final = 8
"""Number of low bits of a key that software may choose."""
INDEX_BITS: Final = 24
"""Number of bits of a key above them."""
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


class MemoryRegions:
    """The regions and windows of one adapter, by the index in the upper 24 bits of their keys.

    Software may change the low byte with each use of a key. A face whose table is smaller lets keys
    alias: `index_bits` says how many bits of the index count. `pd_bits` are the bits of a
    protection domain that the adapter compares, and `reserved_lkey` is the key of all guest
    memory, for queue pairs that may use it. Work requests may register up to `most_pages` pages of
    `page_shifts` (logarithms of bytes) at once.
    """

    def __init__(
        self, *, reserved_lkey: int, pd_bits: int, page_shifts: range, most_pages: int
    ) -> None:
        self.index_bits = INDEX_BITS
        self._page_shifts = page_shifts
        self._most_pages = most_pages
        self._reserved_lkey = reserved_lkey
        self._pd_mask = (1 << pd_bits) - 1
        self._regions: dict[int, MemoryRegion] = {}
        self._owned: dict[int, set[int]] = {}  # windows of type 2 by the queue pair that bound them
        self._pieces = 0

    def reset(self) -> None:
        """Forget every MR."""
        self._regions.clear()
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

    def index_of(self, key: int) -> int:
        """Return the index that a key names."""
        return key >> 8 & ((1 << self.index_bits) - 1)

    def domain_of(self, pd: int) -> int:
        """Return the number that regions in protection domain `pd` have."""
        return pd & self._pd_mask

    # -- the tables of software -------------------------------------------------------------

    def add(self, region: MemoryRegion) -> None:
        """Make a region or window valid; its index must not be in use."""
        self._regions[region.index] = region
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
        del self._regions[index]
        return region

    def check_room(self, region: MemoryRegion) -> None:
        """Raise `Refusal` (LIMIT) when `region` has more pieces than there is room for."""
        if self._pieces + region.pieces > MAX_PIECES:
            raise Refusal(Reason.LIMIT, f"MRs of more than {MAX_PIECES} pieces")

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
        region = self._valid(key, pd)
        if region.free:
            raise AccessError(f"key {key:#x} is not registered")
        if region.owner_qpn and region.owner_qpn != qpn:
            raise AccessError(f"window {key:#x} is bound to QP {region.owner_qpn:#x}")
        if access & ~region.rights:
            raise AccessError(f"key {key:#x} lacks {Rights(access & ~region.rights).name}")
        if va < region.start or va + length > region.start + region.length:
            raise AccessError(f"{va:#x}+{length:#x} is outside of key {key:#x}")
        return region.translate(va, length)

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
            and not region.start
            and region.length >= EVERYTHING
        )

    def _valid(self, key: int, pd: int) -> MemoryRegion:
        region = self._regions.get(self.index_of(key))
        if region is None or region.key != key:
            raise AccessError(f"key {key:#x} is not valid")
        if region.pd != pd & self._pd_mask:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        return region

    def fast_register(self, wanted: Registration, pd: int) -> None:
        """Make a free fast-registration MR valid (REG_MR) under a key whose low byte is new.

        Raises `AccessError`, `DmaError`.
        """
        key, start, length, shift = wanted.key, wanted.start, wanted.length, wanted.page_shift
        region = self._regions.get(self.index_of(key))
        if region is None or not region.fast:
            raise AccessError(f"key {key:#x} is no fast-registration MR")
        if (region.key ^ key) >> KEY_BYTE:
            raise AccessError(f"key {key:#x} has another index than its MR")
        if region.pd != pd & self._pd_mask:
            raise AccessError(f"key {key:#x} belongs to PD {region.pd}, not {pd}")
        if not region.free:
            raise AccessError(f"key {key:#x} is still registered")
        # Rights of peers to change memory need that of its owner (ibv_reg_mr(3)).
        if wanted.rights & REMOTE_CHANGES and not wanted.rights & Rights.LOCAL_WRITE:
            raise AccessError(f"key {key:#x} would be writable for peers only")
        if (
            shift not in self._page_shifts
            or wanted.offset
            or not length
            or start + length > 1 << 64
        ):
            raise AccessError(f"{start:#x}+{length:#x} with page shift {shift} is no region")
        needed = pages_of(start, length, shift)
        if needed > min(region.max_pages, self._most_pages):
            raise AccessError(f"{needed} pages, the MR has room for {region.max_pages}")
        if self._pieces + needed > MAX_PIECES:
            raise AccessError(f"MRs of more than {MAX_PIECES} pieces")
        pages = wanted.pages(needed)
        region.key, region.start, region.length = key, start, length
        region.set_pages(pages, shift)
        self._pieces += region.pieces
        region.rights, region.free = wanted.rights & ALL_RIGHTS, False

    def find(self, key: int) -> MemoryRegion | None:
        """Return the MR or window that a key names, whatever its low byte is; None without one."""
        region = self._regions.get(self.index_of(key))
        if region is None or (region.key ^ key) >> KEY_BYTE:
            return None
        return region

    def own(self, window: MemoryRegion, qpn: int) -> None:
        """Let only the peer of queue pair `qpn` use `window` from now on."""
        window.owner_qpn = qpn
        self._owned.setdefault(qpn, set()).add(window.index)

    def forget_queue_pair(self, qpn: int) -> None:
        """Free the windows that only the peer of queue pair `qpn`, which is gone, could use.

        Another queue pair may get the same number.
        """
        for index in self._owned.pop(qpn, ()):
            window = self._regions[index]
            window.unbind()
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
        region.free = True
        self._release(region)


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
