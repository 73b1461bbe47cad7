"""The binding of memory windows, which open a part of an MR to peers under a key of its own.

Rules: InfiniBand vol. 1, 10.6.7. A window of type 1 may be bound again at any time, one of type 2
only while it is free, and then only the peer of the queue pair that bound it may use it (type 2B).
"""

from __future__ import annotations

from bluebridge.device.rdma.memory.region import MemoryRegion
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.rights import AccessError, Rights


class Binding:
    """A bind request: `length` bytes of the MR `lkey` from `va` on become accessible by `rkey`."""

    __slots__ = ("length", "lkey", "rights", "rkey", "second_type", "va", "zero_based")

    def __init__(
        self,
        rkey: int,
        lkey: int,
        va: int,
        length: int,
        rights: int,
        *,
        second_type: bool,
        zero_based: bool,
    ) -> None:
        self.rkey = rkey
        self.lkey = lkey
        self.va = va
        self.length = length
        self.rights = rights
        self.second_type = second_type
        self.zero_based = zero_based


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
        raise AccessError(f"key {lkey:#x} lacks {Rights(needed & ~parent.rights)!r}")
    if va < parent.start or va + length > parent.start + parent.length:
        raise AccessError(f"{va:#x}+{length:#x} is outside of key {lkey:#x}")
    return parent
