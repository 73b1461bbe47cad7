"""Changes of memory keys by work requests (UMR): registration, invalidation, more of a list.

Linux `ib/umr.c`, `ib/wr.c: set_reg_wr, set_linv_wr`. A list may come in several work requests,
the last of which names the fields that make the key usable. Memory windows and registrations with
gaps are keys whose lists name parts of other keys (rdma-core `providers/mlx5/qp.c: set_bind_wr`,
Linux `ib/mr.c: mlx5_ib_sg_to_klms`), interleaved ones keys whose parts repeat (rdma-core
`umr_strided_seg_create`).
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import Final, NamedTuple

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.wqe import (
    CTRL,
    INLINE,
    REPEAT,
    REPEAT_BLOCK,
    UMR,
    KeyMask,
    UmrFlag,
)
from bluebridge.device.mlx5.rings.message_requests import DATA_SEGMENT, read_flags
from bluebridge.device.rdma.memory.region import (
    EVERYTHING,
    NOWHERE,
    READ_ONLY,
    REMOTE_CHANGES,
    AccessError,
    MemoryRegion,
    Part,
    Rights,
    pages_of,
)
from bluebridge.device.rdma.memory.regions import Entries, Field, MemoryRegions, Values
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory, Sge
from bluebridge.device.rdma.vocabulary import UPDATE
from bluebridge.device.rdma.work import SendWork, WorkError

OCTOWORD: Final = 16
ENTRY_BYTES: Final = 8
PER_OCTOWORD: Final = OCTOWORD // ENTRY_BYTES
PADDING: Final = 8
"""Entries that a list may have more than its key: drivers fill up blocks of 64 bytes."""
MOST_KEPT = 1 << 20
"""Most entries of all lists whose end has not come: 8 MB of the server's memory."""
LOW_BYTE: Final = 0xFF
WRITABLE: Final = 2
KEY_BITS: Final = 8
"""Bits of a key below the index of its region."""
PRESENT: Final = 3
"""Bits of an entry of a list (ib/mlx5_ib.h: MLX5_IB_MTT_READ, MLX5_IB_MTT_WRITE).

A page whose entry has none is absent, one that may only be read is absent for those who write.
"""
PAGE_BITS: Final = 0xFFF
_ALL_PRESENT: Final = bytes(byte for byte in range(256) if byte & PRESENT == PRESENT)
_ALL_ABSENT: Final = bytes(byte for byte in range(256) if not byte & PRESENT)
_LOW_AT: Final = 0 if sys.byteorder == "little" else ENTRY_BYTES - 1
_CONTEXT_AT: Final = CTRL.size + UMR.size
_LIST_AT: Final = _CONTEXT_AT + MKC.size
_FIELDS: Final = {
    KeyMask.LENGTH: Field.LENGTH,
    KeyMask.START: Field.START,
    KeyMask.PD: Field.DOMAIN,
    KeyMask.KEY: Field.KEY,
    KeyMask.FREE: Field.FREE,
}
_RIGHTS: Final = {
    KeyMask.LOCAL_READ: ("local_read", Rights.LOCAL_READ),
    KeyMask.LOCAL_WRITE: ("local_write", Rights.LOCAL_WRITE),
    KeyMask.REMOTE_READ: ("remote_read", Rights.REMOTE_READ),
    KeyMask.REMOTE_WRITE: ("remote_write", Rights.REMOTE_WRITE),
    KeyMask.ATOMIC: ("atomic", Rights.REMOTE_ATOMIC),
}


HARMLESS: Final = int(KeyMask.FREE | KeyMask.KEY)
"""What a queue pair of user space may change: it must not say where memory is."""
WINDOWS: Final = HARMLESS | int(
    KeyMask.LENGTH | KeyMask.START | KeyMask.QPN | KeyMask.LOCAL_READ | KeyMask.LOCAL_WRITE
    | KeyMask.REMOTE_READ | KeyMask.REMOTE_WRITE | KeyMask.ATOMIC
)  # fmt: skip
"""What it may change of a key that consists of parts of others."""
ANY_PAIR: Final = 0xFFFFFF
_KLM: Final = Struct(">IIQ")
"""The table `KLM`, compiled."""
_STRIDED: Final = Struct(">HHIQ")
"""The table `STRIDED`, compiled."""


class Change(NamedTuple):
    """A change of a key by a work request: fields of `context` by `mask`, and a list.

    `listed` is the list itself or where it is, None without one; `octowords` is its length and
    `offset` its place in the translation, both in 16 bytes.
    """

    key: int
    flags: int
    mask: int
    context: bytes
    octowords: int
    offset: int
    listed: bytes | Sge | None


class KeyUpdater:
    """The changes of the keys of one adapter by work requests, on its `regions`."""

    def __init__(self, regions: MemoryRegions) -> None:
        self._regions = regions
        self._lists: dict[int, array[int]] = {}
        """Beginnings of lists for keys that are not usable yet, by index."""
        self._kept = 0  # entries of all of them
        self.indirect: set[int] = set()
        """Indices of keys whose lists name parts of other keys."""

    def reset(self) -> None:
        """Forget what has come of lists."""
        self._lists.clear()
        self._kept = 0
        self.indirect.clear()

    def destroy(self, index: int) -> None:
        """Forget a key that is destroyed."""
        self.forget(index)
        self.indirect.discard(index)

    def forget(self, index: int) -> None:
        """Forget what has come of a list for a key."""
        self._kept -= len(self._lists.pop(index, ()))

    def apply(
        self, change: Change, memory: LocalMemory, pd: int | None, qpn: int, *, trusted: bool
    ) -> int:
        """Carry a change out; raises `AccessError` and `DmaError`, and has changed nothing then.

        `memory` is that of the queue pair `qpn`, `pd` its domain, in which the key must be; None
        for one that may change keys of all domains. One that is not `trusted` must not say where
        memory is. Returns how many entries of lists it took.
        """
        indirect = change.key >> KEY_BITS in self.indirect
        allowed = WINDOWS if indirect else HARMLESS
        if not trusted and ((change.octowords and not indirect) or change.mask & ~allowed):
            raise AccessError(f"QP {qpn:#x} may not register key {change.key:#x}")
        must_be_free = bool(change.flags & UmrFlag.MUST_BE_FREE)
        region = self._regions.changeable(change.key, pd, must_be_free)
        if change.flags & UmrFlag.MUST_NOT_BE_FREE and region.free:
            raise AccessError(f"key {change.key:#x} is not registered")
        if indirect:
            return self._apply_parts(region, change, memory, pd, qpn)
        if change.octowords and not change.mask & KeyMask.LENGTH and region.free:
            return self._keep(region, change, memory)
        change = self._measured(region, change)
        fields, values = _values(region, change)
        entries, at = self._entries(region, change, memory)
        self._regions.update(
            change.key, fields, values, entries, at, pd=pd, must_be_free=must_be_free
        )
        if change.mask & (KeyMask.LENGTH | KeyMask.FREE):
            self.forget(region.index)
        if change.mask & KeyMask.MAY_INVALIDATE:
            region.may_invalidate = bool(MKC.get(change.context, "may_invalidate"))
        if entries is None:
            return 0
        needed = 0
        if not region.lent or change.mask & KeyMask.LENGTH:
            needed = pages_of(region.start, region.length, region.page_shift)
        return max(needed, PER_OCTOWORD * change.octowords)

    def _apply_parts(
        self, region: MemoryRegion, change: Change, memory: LocalMemory, pd: int | None, qpn: int
    ) -> int:
        """Carry out a change of a key whose list names parts of other keys."""
        if change.flags & UmrFlag.SAME_PAIR and region.owner_qpn not in (0, qpn):
            raise AccessError(f"key {change.key:#x} is bound to QP {region.owner_qpn:#x}")
        fields, values = _values(region, change)
        if values.rights & REMOTE_CHANGES:
            # Whether the owner may change memory, too, is up to the keys behind it.
            values = values._replace(rights=values.rights | Rights.LOCAL_WRITE)
        parts, repeats = _listed(_bytes_of(change, memory))
        length = sum(part.length for part in parts) * max(repeats, 1)
        if MKC.get(change.context, "length64"):  # what no part is for, nobody reaches
            values = values._replace(length=EVERYTHING)
        elif change.mask & KeyMask.LENGTH and values.length > length:
            raise AccessError(f"parts of less than {values.length:#x} bytes")
        entries = Entries(parts=parts, repeats=repeats) if parts else None
        mapped = region.mapped
        must_be_free = bool(change.flags & UmrFlag.MUST_BE_FREE)
        self._regions.update(
            change.key, fields, values, entries, change.offset, pd=pd, must_be_free=must_be_free
        )
        if change.mask & KeyMask.QPN and not region.free:
            owner = MKC.get(change.context, "qpn")
            self._regions.own(region, 0 if owner == ANY_PAIR else owner)
        if change.mask & KeyMask.MAY_INVALIDATE:
            region.may_invalidate = bool(MKC.get(change.context, "may_invalidate"))
        # Those behind move when the new ones have another length than the old ones.
        moved = 0 if region.mapped == mapped else len(region.starts) - change.offset
        return max(len(parts), moved)

    def _keep(self, region: MemoryRegion, change: Change, memory: LocalMemory) -> int:
        """Keep a part of a list until the rest has come; returns how many entries are there."""
        known = self._lists.get(region.index, _nothing())
        whole = self._merged(region, known, _pages_of(change, memory), change)
        if self._kept + len(whole) - len(known) > MOST_KEPT:
            raise AccessError(f"lists of more than {MOST_KEPT} entries whose end has not come")
        self._kept += len(whole) - len(known)
        self._lists[region.index] = whole
        return len(whole)

    def _measured(self, region: MemoryRegion, change: Change) -> Change:
        """Return a change with the length of a key that is as long as its list.

        The parts of an implicit registration are (ib/odp.c: implicit_get_child_mr). One without
        bytes says the same, and has a block of its list at most.
        """
        get, context = MKC.get, change.context
        if not change.mask & KeyMask.LENGTH or not get(context, "length64"):
            return change
        known = len(self._lists.get(region.index, ()))
        count = max(known, PER_OCTOWORD * (change.offset + change.octowords))
        if get(context, "length") or count <= PADDING:
            return change
        measured = bytearray(context)
        MKC.set(measured, "length", count << get(context, "log_page_size"))
        return change._replace(context=bytes(measured))

    def _entries(
        self, region: MemoryRegion, change: Change, memory: LocalMemory
    ) -> tuple[Entries | None, int]:
        """Return the entries of a change, and their place in the translation."""
        if change.mask & KeyMask.LENGTH and not MKC.get(change.context, "length"):
            return None, 0  # a region of no length may have a list all the same
        known = self._lists.get(region.index) if change.mask & KeyMask.LENGTH else None
        if not change.octowords and known is None:
            return None, 0
        pages = _pages_of(change, memory)
        shift, needed = _extent(region, change)
        at, count = change.offset * PER_OCTOWORD, -1
        if known is None and region.free:
            known = _nothing()
        if known is not None:
            pages, at = self._merged(region, known, pages, change), 0
        elif not change.mask & KeyMask.LENGTH:
            count = min(len(pages), max(needed - at, 0))
        wanted = pages[: max(needed - at, 0)]  # what follows fills up its block
        pages, lent = _lent(wanted, lent=len(region.lent) > 0)
        return Entries(shift, lambda count: _first(pages, count), count, lent=lent), at

    def _merged(
        self, region: MemoryRegion, known: array[int], pages: array[int], change: Change
    ) -> array[int]:
        """Return a list with `pages` put into it; raises `AccessError` for one that is too long."""
        at, most = change.offset * PER_OCTOWORD, min(region.max_pages, self._regions.most_pages)
        if at > len(known) or at + len(pages) > most + PADDING:
            raise AccessError(f"{len(pages)} entries from {at} on, {len(known)} are there")
        return known[:at] + pages + known[at + len(pages) :]


def read_change(raw: bytes, index: int) -> tuple[SendWork, Change]:
    """Return the work request of a change, without its action; raises `WorkError`."""
    if len(raw) < _LIST_AT:
        raise WorkError("no context of a key")
    work = SendWork(index, UPDATE)
    read_flags(work, raw)
    get = UMR.get
    flags, octowords = get(raw, "flags", CTRL.size), get(raw, "octowords", CTRL.size)
    offset = 0
    if flags & UmrFlag.OFFSET:
        offset = get(raw, "offset", CTRL.size) | get(raw, "offset_high", CTRL.size) << 16
    listed: bytes | Sge | None = None
    if octowords and flags & UmrFlag.INLINE:
        listed = raw[_LIST_AT : _LIST_AT + octowords * OCTOWORD]
    elif octowords:
        if len(raw) < _LIST_AT + DATA_SEGMENT.size:
            raise WorkError("no list of a key")
        length, lkey, address = DATA_SEGMENT.unpack_from(raw, _LIST_AT)
        if length & INLINE:
            raise WorkError("a list of a key in a segment of inline data")
        listed = (lkey, address, min(length, octowords * OCTOWORD))
    context = raw[_CONTEXT_AT:_LIST_AT]
    mask = get(raw, "mask", CTRL.size)
    return work, Change(work.immediate, flags, mask, context, octowords, offset, listed)


def _values(region: MemoryRegion, change: Change) -> tuple[int, Values]:
    """Return the fields of a region that change, and their new values."""
    get, context, mask = MKC.get, change.context, change.mask
    fields = sum(int(field) for bit, field in _FIELDS.items() if mask & bit)
    rights = region.rights
    for bit, (name, right) in _RIGHTS.items():
        if mask & bit:
            fields |= int(Field.RIGHTS)
            rights = rights | right if get(context, name) else rights & ~right
    values = Values(
        key=change.key & ~LOW_BYTE | get(context, "key"),
        pd=get(context, "pd"),
        rights=int(rights),
        start=get(context, "start"),
        length=get(context, "length"),
        free=bool(get(context, "free")),
    )
    return fields, values


def _nothing() -> array[int]:
    return array("Q")


def _extent(region: MemoryRegion, change: Change) -> tuple[int, int]:
    """Return the logarithm of the page size of a region once it is changed, and its pages."""
    get, context, mask = MKC.get, change.context, change.mask
    shift = get(context, "log_page_size") if mask & KeyMask.PAGE_SIZE else region.page_shift
    start = get(context, "start") if mask & KeyMask.START else region.start
    length = get(context, "length") if mask & KeyMask.LENGTH else region.length
    return shift, pages_of(start, length, shift)


def _pages_of(change: Change, memory: LocalMemory) -> array[int]:
    """Return the addresses in the list of a change; raises `AccessError`, `DmaError`."""
    listed = _bytes_of(change, memory)
    count = len(listed) // ENTRY_BYTES
    pages = array("Q", listed[: count * ENTRY_BYTES])
    if sys.byteorder == "little":
        pages.byteswap()
    return pages


def _bytes_of(change: Change, memory: LocalMemory) -> bytes:
    """Return the list of a change; raises `AccessError`, `DmaError`."""
    listed = change.listed
    if listed is None:
        return b""
    if isinstance(listed, bytes):
        return listed
    return b"".join(memory.gather([listed], note=True, what=What.PAGE_LIST))


def _listed(listed: bytes) -> tuple[list[Part], int]:
    """Return the parts in a list, and how many times they come; 0 in one of `KLM`.

    Raises `AccessError` for a list that contradicts itself.
    """
    get = REPEAT.get
    if len(listed) < REPEAT.size or get(listed, "operation") != REPEAT_BLOCK:
        return parts_of(listed), 0
    count, repeats = get(listed, "entries"), get(listed, "repeats")
    raw = listed[REPEAT.size : REPEAT.size + count * _STRIDED.size]
    if not count or not repeats or len(raw) < count * _STRIDED.size:
        raise AccessError(f"{count} entries {repeats} times in a list of {len(listed)} bytes")
    parts = [
        Part(key, address, length, stride)
        for stride, length, key, address in _STRIDED.iter_unpack(raw)
    ]
    if sum(part.length for part in parts) != get(listed, "byte_count"):
        raise AccessError(f"entries of other than {get(listed, 'byte_count')} bytes")
    return parts, repeats


def parts_of(listed: bytes, size: int = 0) -> list[Part]:
    """Return the parts in a list, which fills up a block of 64 bytes with empty ones.

    All have `size` bytes, or if that is 0 each as many as it says.
    """
    found = []
    for length, key, address in _KLM.iter_unpack(listed[: len(listed) & -_KLM.size]):
        if not size and not length:
            break
        found.append(Part(key, address, size or length))
    return found


def _first(pages: array[int], count: int) -> array[int]:
    if count > len(pages):
        raise AccessError(f"{count} entries, the list has {len(pages)}")
    return pages[:count]


def _lent(pages: array[int], *, lent: bool) -> tuple[array[int], bool]:
    """Return the addresses of pages in a list, and whether some are absent or for reading only.

    `lent` says so whatever the list has; bits of other addresses do not count.
    """
    lows = pages.tobytes()[_LOW_AT::ENTRY_BYTES]
    if not lent and not lows.translate(None, _ALL_PRESENT):
        return pages, False
    if not lows.translate(None, _ALL_ABSENT):
        return array("Q", (NOWHERE,)) * len(pages), True
    return array("Q", [
        page & ~PAGE_BITS | (0 if page & WRITABLE else READ_ONLY) if page & PRESENT else NOWHERE
        for page in pages
    ]), True  # fmt: skip
