"""Memory keys as work requests of UMR change them, for tests with `RoceNode`."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from types import MappingProxyType

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.queue_pairs import Service
from bluebridge.device.layout.mlx5.wqe import UMR, KeyMask, SendOpcode, UmrFlag
from tests.models.mlx5_pair import Pair, RoceNode

PAGE = 4096
ENABLE = int(
    KeyMask.LENGTH | KeyMask.PAGE_SIZE | KeyMask.START | KeyMask.MAY_INVALIDATE | KeyMask.KEY
    | KeyMask.LOCAL_READ | KeyMask.LOCAL_WRITE | KeyMask.REMOTE_READ | KeyMask.REMOTE_WRITE
    | KeyMask.FREE
)  # fmt: skip
ACCESS = {
    "local_read": 1, "local_write": 1, "remote_read": 1, "remote_write": 1, "may_invalidate": 1,
    "log_page_size": 12,
}  # fmt: skip
FREE: dict[str, Value] = {"free": 1}
START = 0x10000000


def empty_key(node: RoceNode, pages: int = 8) -> int:
    """A key without memory."""
    return node.make_key(
        (), access_mode=1, length64=0, free=1, umr=1, local_read=0, local_write=0,
        translations=(pages + 1) // 2,
    )  # fmt: skip


def listed(pages: list[int]) -> bytes:
    """A list of pages of whole blocks of 64 bytes, with the bits that say "present"."""
    raw = b"".join((page | 3).to_bytes(8, "big") for page in pages)
    return raw.ljust(-(-len(raw) // 64) * 64, b"\0")


def change(
    pair: Pair,
    key: int,
    mask: int,
    pages: list[int] | None = None,
    *,
    flags: int = 0,
    apart: bool = False,
    offset: int = 0,
    values: Mapping[str, Value] = MappingProxyType({}),
    entries: bytes | None = None,
    place: int = 0,
) -> None:
    """Post a change of a key, with a list in the entry or `apart` from it.

    The list has `pages`, which are present, or `entries`, which are put to `place` first.
    """
    raw = b"" if pages is None else listed(pages)
    if entries is not None:
        raw, apart = entries, True
    flags |= UmrFlag.OFFSET if offset else 0
    tail = raw
    if apart:
        if place:
            pair.node.host.poke(place, raw)
        tail = pack(">IIQ", len(raw), pair.node.key, place or pair.node.memory(raw))
    else:
        flags |= UmrFlag.INLINE
    control = UMR.pack(flags=flags, octowords=len(raw) // 16, offset=offset, mask=mask)
    context = MKC.pack({"key": key & 0xFF, "qpn": 0xFFFFFF, **values})
    pair.post(SendOpcode.UMR, bytes(control) + bytes(context) + tail, last=key)


def register(pair: Pair, key: int, pages: list[int], *, apart: bool = False) -> None:
    """Post a registration (REG_MR) of these pages."""
    values: dict[str, Value] = {**ACCESS, "start": START, "length": PAGE * len(pages)}
    change(pair, key, ENABLE, pages, flags=UmrFlag.MUST_BE_FREE, apart=apart, values=values)


def updater_of(node: RoceNode) -> Pair:
    """A queue pair of UMR, as Linux makes it: RST2INIT_QP brings its domain (ib/umr.c)."""
    pair = node.make_pair(Service.UMR, pd=0, fast_register=1, log_sq_size=4)
    pair.start(0, pd=node.pd)
    return pair
