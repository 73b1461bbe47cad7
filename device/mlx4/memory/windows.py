"""Binding memory windows: a part of an MR under a key of its own, for peers only.

Rules: InfiniBand vol. 1, 10.6.7. A window of type 1 may be bound again at any time, one of type 2
only while it is free, and then only the peer of the queue pair that bound it may use it (type 2B).
Encoding: Linux `mlx4/mr.c: mlx4_mw_enable`, rdma-core `providers/mlx4/qp.c: set_bind_seg`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.mlx4.wqe import BindFlag
from bluebridge.device.mlx4.memory.protection_entry import (
    PD_MASK,
    AccessError,
    Rights,
    hardware_key,
)
from bluebridge.device.mlx4.memory.region import MemoryRegion
from bluebridge.device.mlx4.memory.regions import MemoryRegions

BIND: Final = Struct(">IIIIQQ")
_RIGHTS: Final = (
    (BindFlag.REMOTE_READ, Rights.REMOTE_READ),
    (BindFlag.REMOTE_WRITE, Rights.REMOTE_WRITE),
    (BindFlag.REMOTE_ATOMIC, Rights.REMOTE_ATOMIC),
)


def bind(regions: MemoryRegions, segment: bytes, *, pd: int, qpn: int) -> None:
    """Carry out the bind segment of queue pair `qpn` in protection domain `pd`.

    Raises `AccessError`, and nothing has changed then. A length of zero takes back what a window
    of type 1 shows.
    """
    access, kind, rkey, lkey, va, length = BIND.unpack_from(segment)
    second_type = bool(kind & BindFlag.TYPE_2)
    window = _window(regions, rkey, pd, second_type=second_type)
    rights = 0
    for flag, right in _RIGHTS:
        if access & flag:
            rights |= right
    if length:
        parent = _parent(regions, lkey, pd, (va, length), rights)
        window.bind(parent, va, length, zero_based=bool(kind & BindFlag.ZERO_BASED))
        window.rights = rights
    elif second_type:
        raise AccessError(f"window {rkey:#x} of no length")
    else:
        window.unbind()
    window.key = hardware_key(rkey)
    window.free = False
    if second_type:
        regions.own(window, qpn)


def _window(regions: MemoryRegions, rkey: int, pd: int, *, second_type: bool) -> MemoryRegion:
    """The window that is to be bound under `rkey`, whose low byte is new."""
    window = regions.find(rkey)
    if window is None or not window.window or window.second_type != second_type:
        raise AccessError(f"key {rkey:#x} is no window of type {1 + second_type}")
    if window.pd != pd & PD_MASK:
        raise AccessError(f"window {rkey:#x} belongs to PD {window.pd}, not {pd}")
    if second_type and not window.free:
        raise AccessError(f"window {rkey:#x} is still bound")
    return window


def _parent(
    regions: MemoryRegions, lkey: int, pd: int, stretch: tuple[int, int], rights: int
) -> MemoryRegion:
    """The MR behind a window, if it permits what the window is to permit.

    `stretch` is what the window is to show: virtual address and length in bytes.
    """
    va, length = stretch
    parent = regions.find(lkey)
    if parent is None or parent.window or parent.free or parent.key != hardware_key(lkey):
        raise AccessError(f"key {lkey:#x} is no memory region")
    if parent.pd != pd & PD_MASK:
        raise AccessError(f"key {lkey:#x} belongs to PD {parent.pd}, not {pd}")
    needed = int(Rights.BIND_WINDOW)
    if rights & (Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC):
        needed |= Rights.LOCAL_WRITE
    if needed & ~parent.rights:
        raise AccessError(f"key {lkey:#x} lacks {Rights(needed & ~parent.rights)!r}")
    if va < parent.start or va + length > parent.start + parent.length:
        raise AccessError(f"{va:#x}+{length:#x} is outside of key {lkey:#x}")
    return parent
