"""Memory keys as contexts describe them: all of memory, lists of pages, of parts of other keys.

Linux `core/mr.c`, `core/en_common.c: mlx5e_create_mkey`, `ib/mr.c: reg_create`. Lists of parts
come from programs, UCX among them (`ib_mlx5dv_md.c: uct_ib_mlx5_devx_reg_ksm`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from struct import unpack_from
from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import MKC, AccessMode
from bluebridge.device.layout.mlx5.objects import CREATE_MKEY, ENTRY, LIST
from bluebridge.device.layout.mlx5.wqe import KLM, REPEAT, REPEAT_BLOCK, STRIDED
from bluebridge.device.mlx5.numbers import Numbers
from bluebridge.device.mlx5.objects.key_updates import (
    ANY_PAIR,
    KEY_BITS,
    LOW_BYTE,
    KeyUpdater,
    parts_of,
)
from bluebridge.device.mlx5.rings.user_memory import Part, UserMemory
from bluebridge.device.mlx5.settings.capabilities import LOG_MAX_KEYS
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.memory.region import EVERYTHING, MemoryRegion, Rights, pages_of
from bluebridge.device.rdma.memory.regions import MemoryRegions

FIRST_KEY: Final = (REPEAT_BLOCK >> KEY_BITS) + 1
"""The first index: keys 0x000 to 0x4ff stand for none, the end of lists, and lists that repeat."""
MAX_KEYS: Final = (1 << LOG_MAX_KEYS) - FIRST_KEY
RESERVED_LKEY: Final = 0xFFFF_FF00
"""All of memory in every domain, for queue pairs that may use it; an index that no key gets."""
NULL_KEY: Final = 0xFFFF_FE00
"""Of parts of keys that are absent; an index that no key gets."""
MOST_SHOWN: Final = 1 << 10
"""Most parts of a key that QUERY_MKEY tells."""
PORTION: Final = 1 << 14
"""Pages of a list that are read in one turn of the loop: some three milliseconds."""
PARTS: Final = PORTION // 4
"""Parts of a list that are read in one turn."""
PAGE_SHIFTS: Final = range(12, 32)
ADDRESS_BYTES: Final = 8
TRANSLATIONS: Final = 2
"""Addresses of pages in 16 bytes of a list."""
MOST_TRANSLATIONS: Final = 1 << 18
"""As many as fit into a command."""
_List = Callable[[int, int], Sequence[int]]
"""Returns addresses of pages of a key: from which one on, and how many. Raises `Refused`."""
_MODES: Final = frozenset(AccessMode)
_OF_PARTS: Final = (AccessMode.KLMS, AccessMode.KSM)
_RIGHTS: Final = {
    "atomic": Rights.REMOTE_ATOMIC,
    "remote_write": Rights.REMOTE_WRITE,
    "remote_read": Rights.REMOTE_READ,
    "local_write": Rights.LOCAL_WRITE,
    "local_read": Rights.LOCAL_READ,
}


class MemoryKeys:
    """The keys of one adapter; `regions` are what they give access to."""

    def __init__(self, regions: MemoryRegions, users: UserMemory) -> None:
        self.regions = regions
        self._users = users
        self.updater = KeyUpdater(regions)
        self._numbers = Numbers("mkey", FIRST_KEY, MAX_KEYS)
        self._contexts: dict[int, bytes] = {}

    def reset(self) -> None:
        """Forget all keys."""
        self._numbers.reset()
        self._contexts.clear()
        self.updater.reset()
        self.regions.reset()

    def __len__(self) -> int:
        return len(self._contexts)

    def contexts(self) -> dict[int, bytes]:
        """Return the contexts of all keys as software gave them, by index."""
        return dict(self._contexts)

    def create(self, data: bytes) -> Generator[bytes, None, int]:
        """Make a key by the input of CREATE_MKEY; yields between portions, returns its index.

        Raises `Refused` (BAD_PARAM, BAD_RES for no memory of a user, LIM_ERR), `Refusal` (LIMIT).
        """
        context = data[ENTRY : ENTRY + MKC.size]
        mode = access_mode(context)
        if mode not in _MODES:
            raise Refused(Status.BAD_PARAM, f"keys of access mode {mode} are not offered")
        region = _region(mode, context)
        if not region.free and mode == AccessMode.MTT:
            yield from _translate(region, self._list_of(data, region.page_shift), data)
        elif not region.free and mode in _OF_PARTS:
            yield from _compose(region, mode, data)
        self.regions.check_room(region)
        # Not before: a command that is forgotten between two portions leaves nothing.
        index = region.index = self._numbers.take()
        region.key |= index << 8
        self.regions.add(region)
        self._contexts[index] = context
        if mode in _OF_PARTS:
            self.updater.indirect.add(index)
        return index

    def _list_of(self, data: bytes, shift: int) -> _List:
        """Return what has the pages of a key: the command itself, or memory of a user."""
        if CREATE_MKEY.get(data, "umem_valid"):
            memory = self._users.use(CREATE_MKEY.get(data, "umem"), Part.PAGES)
            offset = CREATE_MKEY.get(data, "umem_offset")
            return lambda first, count: memory.pages_from(offset, shift, first, count)

        def listed(first: int, count: int) -> Sequence[int]:
            at = LIST + ADDRESS_BYTES * first
            if at + ADDRESS_BYTES * count > len(data):
                raise Refused(Status.BAD_PARAM, f"page {first + count} of a list is not there")
            return unpack_from(f">{count}Q", data, at)

        return listed

    def query(self, index: int) -> bytes:
        """Return the context of a key, as work requests have changed it; raises `Refused`."""
        self._numbers.check(index)
        region, context = self.regions.get(index), bytearray(self._contexts[index])
        if region is not None and region.fast:
            now = {
                "free": region.free, "key": region.key & LOW_BYTE, "pd": region.pd,
                "start": region.start, "length": region.length,
                "qpn": region.owner_qpn or ANY_PAIR,
                **{name: bool(region.rights & right) for name, right in _RIGHTS.items()},
            }  # fmt: skip
            for name, value in now.items():
                MKC.set(context, name, int(value))
        return bytes(context)

    def query_parts(self, index: int) -> bytes:
        """Return the first parts of other keys that a key consists of, as lists have them."""
        region = self.regions.get(index)
        if region is None or not region.part_keys:
            return b""
        many = len(region.starts) > MOST_SHOWN
        end = region.starts[MOST_SHOWN] if many else region.cycle or region.mapped
        parts = region.parts_at(region.origin, end)
        if not region.cycle:
            return b"".join(
                KLM.pack(byte_count=length, key=key, address=address)
                for key, address, length, _ in parts
            )
        head = REPEAT.pack(
            byte_count=region.cycle, operation=REPEAT_BLOCK,
            repeats=region.mapped // region.cycle, entries=len(region.starts),
        )  # fmt: skip
        return bytes(head) + b"".join(
            STRIDED.pack(stride=stride, byte_count=length, key=key, address=address)
            for (key, address, length, _), stride in zip(parts, region.strides, strict=False)
        )

    def destroy(self, index: int) -> None:
        """Destroy a key, through which nothing is reached from now on; raises `Refused`."""
        self._numbers.check(index)
        self.regions.remove(index)
        self._numbers.free(index)
        self.updater.destroy(index)
        del self._contexts[index]


def access_mode(data: bytes, at: int = 0) -> int:
    """Return how a key translates addresses (`AccessMode`), by its context at an offset."""
    return MKC.get(data, "access_mode_high", at) << 2 | MKC.get(data, "access_mode", at)


def _region(mode: int, context: bytes) -> MemoryRegion:
    """Return the region that a context describes, without an index; raises `Refused`."""
    get = MKC.get
    physical = mode == AccessMode.PHYSICAL
    everything = bool(get(context, "length64")) and physical
    start = 0 if everything else get(context, "start")
    length = EVERYTHING if everything else get(context, "length")
    if start + length > 1 << 64:
        raise Refused(Status.BAD_PARAM, f"{length:#x} bytes from {start:#x} on")
    free = bool(get(context, "free"))
    return MemoryRegion(
        index=0,
        key=get(context, "key"),
        pd=get(context, "pd"),
        rights=sum(right for name, right in _RIGHTS.items() if get(context, name)),
        start=start,
        length=length,
        page_shift=get(context, "log_page_size"),
        physical=physical,
        fast=bool(get(context, "umr")),
        may_invalidate=bool(get(context, "may_invalidate")),
        free=free,
        max_pages=(1 if mode in _OF_PARTS else TRANSLATIONS) * get(context, "translations"),
    )


def _translate(region: MemoryRegion, listed: _List, data: bytes) -> Iterator[bytes]:
    shift, translations = region.page_shift, CREATE_MKEY.get(data, "translations")
    if shift not in PAGE_SHIFTS:
        raise Refused(Status.BAD_PARAM, f"pages of 2**{shift} bytes")
    count = pages_of(region.start, region.length, shift)
    if count > TRANSLATIONS * min(translations, MOST_TRANSLATIONS):
        raise Refused(Status.BAD_PARAM, f"{count} pages, {TRANSLATIONS * translations} listed")
    if count:
        listed(count - 1, 1)  # a list that is too short is refused before it costs time
    region.set_pages((), shift)
    for first in range(0, count, PORTION):
        if first:
            yield b""
        some = min(PORTION, count - first)
        region.add_pages(listed(first, some))


def _compose(region: MemoryRegion, mode: int, data: bytes) -> Iterator[bytes]:
    """Translate a key by the parts of others that its command lists; raises `Refused`.

    Parts of KSM all have the key's page size, and the first begins at the key's first address.
    Those of UCX, of 2 GiB, lie mostly outside of the key behind them: an access finds that out.
    """
    count, size = CREATE_MKEY.get(data, "translations"), 0
    if mode == AccessMode.KSM:
        if region.page_shift not in PAGE_SHIFTS:
            raise Refused(Status.BAD_PARAM, f"parts of 2**{region.page_shift} bytes")
        size = 1 << region.page_shift
    end = LIST + KLM.size * count
    if end > len(data):
        raise Refused(Status.BAD_PARAM, f"part {count} of a list is not there")
    for at in range(LIST, end, KLM.size * PARTS):
        if at > LIST:
            yield b""
        listed = parts_of(data[at : min(at + KLM.size * PARTS, end)], size)
        region.put_parts(listed, len(region.starts))
        if len(listed) < PARTS:
            break
    if region.length > region.mapped:
        raise Refused(Status.BAD_PARAM, f"{region.length:#x} bytes in {region.mapped:#x} of parts")
