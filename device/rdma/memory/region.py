"""A memory region or window: its rights and the translation of its addresses.

Adjacent pages are joined into longer pieces at the speed of whole arrays: a loop over a million
pages takes a third of a second, and others wait for the command meanwhile.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from itertools import compress, pairwise
from typing import Final, NamedTuple

from bluebridge.device import pieces
from bluebridge.device.pci.bus import Run

_WORD: Final = 8
_WORDS_ARE_LITTLE: Final = sys.byteorder == "little"
WORTH_JOINING: Final = 4
"""Pages are joined where at least one in this many continues the page before it."""

MANY_PAGES: Final = 4096
"""Number of pages from which on work on whole arrays is faster than a loop."""

ALL_RIGHTS: Final = 0x3F
EVERYTHING: Final = (1 << 64) - 1
"""Length in bytes of a region over the whole address space."""
NOWHERE: Final = (1 << 64) - 1
"""Address of a page that is absent: software has lent no memory for it now."""
READ_ONLY: Final = 1
"""Bit in the address of a page that is lent for reading only: for a change it is absent."""


def pieces_of(pages: array[int], size: int) -> tuple[array[int], array[int]]:
    """Return two arrays: where pieces begin in a region of these pages, and their addresses.

    `size` is that of a page in bytes; bits of page addresses below it are ignored. `pages` must
    not be empty.
    """
    count = len(pages)
    words = _number(pages) & _repeated(-size & ((1 << 64) - 1), count)
    aligned = _array(words, count)
    breaks = _breaks(words, count, size)
    if WORTH_JOINING * breaks.count(0) < count:
        return array("Q", range(0, count * size, size)), aligned
    starts = compress(range(0, count * size, size), breaks)
    return array("Q", starts), array("Q", compress(aligned, breaks))


def _breaks(words: int, count: int, size: int) -> bytes:
    """Return a byte for each page: 0 if it continues the one before."""
    halves, last = words >> 1, count - 1  # room for a carry at the top of each word
    differs = (halves + _repeated(size >> 1, last)) ^ halves >> 64
    raw = (differs & ((1 << 64 * last) - 1)).to_bytes(_WORD * last, "little")
    found = 0
    for byte in range(_WORD):
        found |= int.from_bytes(raw[byte::_WORD], "little")
    return b"\1" + found.to_bytes(last, "little")


def _repeated(word: int, count: int) -> int:
    return int.from_bytes(word.to_bytes(_WORD, "little") * count, "little")


def _number(words: array[int]) -> int:
    """Return all words as one number, the first one lowest."""
    raw = array("Q", words)
    if not _WORDS_ARE_LITTLE:
        raw.byteswap()
    return int.from_bytes(raw.tobytes(), "little")


def _array(number: int, count: int) -> array[int]:
    words = array("Q", number.to_bytes(_WORD * count, "little"))
    if not _WORDS_ARE_LITTLE:
        words.byteswap()
    return words


def pages_of(start: int, length: int, page_shift: int) -> int:
    """Count the pages of `1 << page_shift` bytes that `start`..`start+length` touch."""
    return ((start + length - 1) >> page_shift) - (start >> page_shift) + 1 if length else 0


class Part(NamedTuple):
    """A part of an indirect region: `length` bytes from `address` on of the region `key`.

    Where parts repeat, this one is `stride` bytes further each time.
    """

    key: int
    address: int
    length: int
    stride: int = 0


def _no_pieces() -> array[int]:
    return array("Q")


def _no_keys() -> array[int]:
    return array("I")


@dataclass(slots=True)
class MemoryRegion:
    """A memory region (MR), or, if `window` is set, a memory window on a part of one.

    `key` is the key that it can be accessed with now.

    `index` is its place in the adapter's table, `fast` says that work requests register it, which
    may have up to `max_pages` pages. `starts` and `addresses` are the translation with physical
    neighbours joined: piece i begins `starts[i]` bytes behind address `origin`, the last one ends
    `mapped` bytes behind it. A window that is bound shares the translation of the MR `parent`,
    which counts its `windows`; `second_type` windows are bound to one queue pair: `owner_qpn` is
    the only one whose peer may use it, 0 for any. A region that is not `direct` consists of parts
    of other regions, then `part_keys` has the key of each piece, or of pages that may be absent:
    `lent` has the address of each, `NOWHERE` or with `READ_ONLY` in it, and there are no pieces.
    Parts that repeat do so every `cycle` bytes, each its `strides` further; without it they do not.
    """

    index: int
    key: int
    pd: int
    rights: int
    start: int
    length: int
    page_shift: int
    physical: bool
    fast: bool
    may_invalidate: bool
    free: bool
    max_pages: int
    window: bool = False
    second_type: bool = False
    windows: int = 0
    owner_qpn: int = 0
    parent: MemoryRegion | None = None
    origin: int = 0
    starts: array[int] = field(default_factory=_no_pieces)
    addresses: array[int] = field(default_factory=_no_pieces)
    mapped: int = 0
    part_keys: array[int] = field(default_factory=_no_keys)
    direct: bool = True
    lent: array[int] = field(default_factory=_no_pieces)
    cycle: int = 0
    strides: array[int] = field(default_factory=_no_keys)

    @property
    def pieces(self) -> int:
        """The number of pieces that the device has to remember; 0 for a window."""
        return 0 if self.window else len(self.starts) + len(self.lent)

    def translate(self, va: int, length: int) -> Sequence[Run]:
        """Return the guest-physical runs of `length` bytes at `va`, which must lie inside."""
        offset = va - self.origin
        if self.physical:
            return [(offset, length)]
        starts = self.starts
        index = bisect_right(starts, offset) - 1
        if index == len(starts) - 1 or offset + length <= starts[index + 1]:
            return [(self.addresses[index] + offset - starts[index], length)]
        return pieces.translate(starts, self.addresses, self.mapped, offset, length)

    def lent_at(self, va: int, length: int, *, changes: bool) -> list[Run]:
        """Return the runs of bytes in pages that may be absent; raises `AbsentError`.

        `changes` says that they shall be written, which pages lent for reading do not permit.
        """
        shift, lent = self.page_shift, self.lent
        size = 1 << shift
        offset, found, end = va - self.origin, list[Run](), -1
        while length > 0:
            page = lent[offset >> shift]
            if page == NOWHERE or (changes and page & READ_ONLY):
                raise AbsentError(self.key, self.origin + offset)
            within = offset & (size - 1)
            taken = min(size - within, length)
            address = (page & -size) + within
            if address == end:
                start, before = found[-1]
                found[-1] = (start, before + taken)
            else:
                found.append((address, taken))
            end = address + taken
            offset, length = offset + taken, length - taken
        return found

    def parts_at(self, va: int, length: int) -> Iterator[Part]:
        """Yield what of other regions `length` bytes at `va` are; raises `AbsentError`.

        There may be a million, or 2**48 that repeat: who has seen enough makes no more of them.
        """
        left = self.mapped - (va - self.origin)
        turn, offset = divmod(va - self.origin, self.cycle or self.mapped)
        index = bisect_right(self.starts, offset) - 1
        while length:
            if left <= 0:
                raise AbsentError(self.key, va)
            within = offset - self.starts[index]
            if self.cycle:
                within += turn * self.strides[index]
            taken = min(self._end(index) - offset, length)
            yield Part(self.part_keys[index], self.addresses[index] + within, taken)
            offset, length, index, left = offset + taken, length - taken, index + 1, left - taken
            if index == len(self.starts):
                turn, offset, index = turn + 1, 0, 0

    def _end(self, index: int) -> int:
        """Return where a part ends, in bytes behind where the first one begins."""
        last = index + 1 == len(self.starts)
        return self.cycle or self.mapped if last else self.starts[index + 1]

    def put_parts(self, parts: Sequence[Part], at: int, repeats: int = 0) -> None:
        """Put parts of other regions, none of them empty, into the list from number `at` on.

        It costs as much as there are new ones, unless others behind them move. Parts that come
        `repeats` times are a list of their own, as is what replaces them.
        """
        if not self.part_keys or self.cycle or repeats:
            self.forget_pages()
            self.origin, self.direct = self.start, False
        count, offset = len(parts), self.mapped if at == len(self.starts) else self.starts[at]
        starts = array("Q")
        for part in parts:
            starts.append(offset)
            offset += part.length
        behind = self.starts[at + count :]
        moved = offset - behind[0] if behind else 0
        self.mapped = self.mapped + moved if behind else offset
        self.starts[at : at + count] = starts
        self.part_keys[at : at + count] = array("I", [part.key for part in parts])
        self.addresses[at : at + count] = array("Q", [part.address for part in parts])
        if moved:
            self.starts[at + count :] = array("Q", [start + moved for start in behind])
        if repeats:
            self.cycle, self.mapped = self.mapped, self.mapped * repeats
            self.strides = array("I", [part.stride for part in parts])

    def page_list(self) -> list[int]:
        """Return the addresses of the pages of the translation; none of one of parts."""
        if self.part_keys or self.lent or not self.starts:
            return self.lent.tolist()
        size, starts, addresses = 1 << self.page_shift, self.starts, self.addresses
        ends = [*starts[1:], self.mapped]
        return [
            address + at
            for start, end, address in zip(starts, ends, addresses, strict=True)
            for at in range(0, end - start, size)
        ]

    def set_pages(self, pages: Sequence[int], page_shift: int, *, lent: bool = False) -> None:
        """Replace the translation: one address per page of `1 << page_shift` bytes.

        The first page is the one that holds address `start`. `lent` says that pages may be absent.
        """
        self.forget_pages()
        self.page_shift = page_shift
        self.origin = self.start >> page_shift << page_shift
        if lent:
            self.lent, self.direct = array("Q", pages), False
            self.mapped = len(pages) << page_shift
        else:
            self.add_pages(pages)

    def add_pages(self, pages: Sequence[int]) -> None:
        """Continue a translation with more pages."""
        size, mapped = 1 << self.page_shift, self.mapped
        if len(pages) >= MANY_PAGES:
            starts, addresses = pieces_of(array("Q", pages), size)
        else:
            aligned = array("Q", [page & -size for page in pages])
            breaks = [0] if aligned else []
            breaks += [i for i, (a, b) in enumerate(pairwise(aligned), 1) if b - a != size]
            starts = array("Q", [index * size for index in breaks])
            addresses = array("Q", [aligned[index] for index in breaks])
        self.mapped = mapped + len(pages) * size
        if not mapped:
            self.starts, self.addresses = starts, addresses
            return
        joined = int(addresses[0] == self.addresses[-1] + mapped - self.starts[-1])
        self.starts.extend([start + mapped for start in starts[joined:]])
        self.addresses.extend(addresses[joined:])

    def forget_pages(self) -> None:
        """Remove the translation."""
        self.starts, self.addresses, self.mapped = _no_pieces(), _no_pieces(), 0
        self.part_keys, self.direct, self.lent = _no_keys(), True, _no_pieces()
        self.cycle, self.strides = 0, _no_keys()

    def bind(self, parent: MemoryRegion, va: int, length: int, *, zero_based: bool) -> None:
        """Bind this window to `length` bytes of `parent` from its address `va` on."""
        self.unbind()
        self.start = 0 if zero_based else va
        self.length = length
        self.origin = parent.origin - va if zero_based else parent.origin
        self.physical, self.page_shift = parent.physical, parent.page_shift
        self.starts, self.addresses = parent.starts, parent.addresses
        self.mapped = parent.mapped
        self.direct, self.part_keys, self.lent = parent.direct, parent.part_keys, parent.lent
        self.cycle, self.strides = parent.cycle, parent.strides
        self.parent = parent
        parent.windows += 1

    def unbind(self) -> None:
        """Unbind this window from its parent, so that it permits no access."""
        if self.parent is not None:
            self.parent.windows -= 1
            self.parent = None
        self.rights = self.owner_qpn = 0
        self.forget_pages()


class Rights(IntFlag):
    """Accesses that a memory region or window permits."""

    LOCAL_READ = 1 << 0
    LOCAL_WRITE = 1 << 1
    REMOTE_READ = 1 << 2
    REMOTE_WRITE = 1 << 3
    REMOTE_ATOMIC = 1 << 4
    BIND_WINDOW = 1 << 5


CHANGES: Final = int(Rights.LOCAL_WRITE | Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
"""Rights that an access needs which changes memory."""
REMOTE_CHANGES: Final = int(Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
"""Rights that a region may have only with LOCAL_WRITE (InfiniBand vol. 1, 10.6.3.1)."""


class AccessError(Exception):
    """A key, range or right is not valid for an access; no memory was touched."""


class AbsentError(AccessError):
    """An access is permitted, but a page at `address` of the region `key` is absent.

    A face that can have pages brought in catches it and repeats the operation; for others it is an
    `AccessError` like any.
    """

    def __init__(self, key: int, address: int) -> None:
        super().__init__(f"{address:#x} of key {key:#x} is absent")
        self.key = key
        self.address = address
