"""What memory regions of every adapter are: their pages, and what may be done to them."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags

MAX_PAGE_SHIFT = 21  # of regions over contiguous memory: a hugepage


def rights(access: AccessFlags | int) -> dict[str, int]:
    """Return what access flags allow, by the names of rights."""
    flags = AccessFlags(access)
    if flags & (AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_ATOMIC) and not (
        flags & AccessFlags.LOCAL_WRITE
    ):
        raise VerbsError("remote write or atomic access needs local write access too")
    return {
        "local_read": 1,
        "local_write": int(bool(flags & AccessFlags.LOCAL_WRITE)),
        "remote_read": int(bool(flags & AccessFlags.REMOTE_READ)),
        "remote_write": int(bool(flags & AccessFlags.REMOTE_WRITE)),
        "remote_atomic": int(bool(flags & AccessFlags.REMOTE_ATOMIC)),
    }


def pages_of(
    memory: int | Sequence[int], length: int, iova: int, page_shift: int
) -> tuple[list[int], int]:
    """Return the pages of a region and the logarithm of their size; raises `VerbsError`.

    The parameters are those of `ProtectionDomain.reg_mr`.
    """
    if isinstance(memory, int):
        pages, page_shift = blocks_of(memory, length, iova)
    else:
        pages = list(memory)
    size = 1 << page_shift
    needed = -(-((iova & (size - 1)) + length) // size)
    if length < 1 or iova < 0 or iova + length > 1 << 64:
        raise VerbsError(f"a region of {length} bytes at {iova:#x} is not possible")
    if len(pages) != needed:
        raise VerbsError(f"{len(pages)} pages given, the region has {needed}")
    if any(page & (size - 1) for page in pages):
        raise VerbsError(f"a page does not start at a multiple of {size}")
    return pages, page_shift


def blocks_of(address: int, length: int, iova: int) -> tuple[list[int], int]:
    """Return the largest blocks with the same offset in `address` and `iova`, and their shift.

    Blocks may begin before the region and end after it: start and length bound the access.
    """
    difference = (address ^ iova) & ((1 << MAX_PAGE_SHIFT) - 1)
    shift = MAX_PAGE_SHIFT if not difference else (difference & -difference).bit_length() - 1
    if shift < 12:
        raise VerbsError(f"IOVA {iova:#x} and address {address:#x} differ in their page offset")
    size = 1 << shift
    first = address & -size
    return list(range(first, address + length, size)), shift
