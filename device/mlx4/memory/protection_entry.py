"""Entries of the memory protection table as guests write them, and their meaning."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import MPT, MPT_STATUS_FREE
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.memory.region import ALL_RIGHTS, EVERYTHING, MemoryRegion, Rights

PD_BITS: Final = 17
"""Number of bits of a protection domain's number that the MPT holds."""


def hardware_key(key: int) -> int:
    """Return a key in the form an MPT stores: rotated so that the index is in the low bits."""
    return key >> 8 | (key & 0xFF) << 24


def software_key(key: int) -> int:
    """Return a key as software knows it, from the form that an MPT stores."""
    return key << 8 & 0xFFFFFFFF | key >> 24


def rights_of_fast_register(flags: int) -> Rights:
    """Return the rights in the flags word of a fast-registration segment (b27..b31)."""
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
        rights=int.from_bytes(entry[:4], "big") & ALL_RIGHTS,
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
    if key & (1 << log_mpts) - 1 != index:
        raise CommandError(Status.BAD_PARAM, f"key {key:#x} does not name MPT {index:#x}")
    if get(entry, "first_byte_offset") or get(entry, "mtt_rep"):
        raise CommandError(Status.BAD_PARAM, f"MPT {index:#x}: an offset or a repeated page list")
    if region.window:
        if region.fast or region.physical:
            raise CommandError(Status.BAD_PARAM, f"MPT {index:#x} is a window and an MR")
        region.rights = region.length = 0  # it shows nothing until it is bound
    return region
