"""Two records of the same register accesses, one by the guest's kernel, one by the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.bar0 import MSIX_PBA_OFFSET, MSIX_TABLE_OFFSET
from bluebridge.device.layout.mlx4.uar import BLUEFLAME, PAGE_SIZE, UAR
from bluebridge.host_tools.mmiotrace.trace import Access, Trace, Window, aligned

_MSIX = Window(0, MSIX_TABLE_OFFSET, MSIX_PBA_OFFSET + PAGE_SIZE - MSIX_TABLE_OFFSET)
"""The window of MSI-X table and pending bits: QEMU answers there, the device sees no access."""


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the two records."""

    matched: int
    """The number of accesses from the beginning that are the same in both, in order."""
    traced: int
    logged: int
    """Accesses that were compared, of the kernel's record and of the log."""
    reads: int
    """The number of reads among `traced`."""
    table: int
    """The number of accesses of the MSI-X table, which are left out of the kernel's record."""
    user: int
    """The number of accesses through user-space mappings, which the tracer cannot see; left out."""
    unseen: int
    """The accesses left out of the log: those of mappings inside a page, which are not traced."""
    difference: str = ""
    """The first place where the two records differ, in a few lines; empty if they do not."""

    @property
    def same(self) -> bool:
        """Whether every access is in both records, in the same order."""
        return not self.difference and self.traced > 0

    def text(self) -> str:
        """Return the verdict as text for people."""
        rows = [
            f"mmiotrace: {self.traced:,} accesses ({self.reads:,} reads); bus log: {self.logged:,}",
            f"left out: {self.table:,} of the MSI-X table, which QEMU keeps; "
            f"{self.user:,} by user space",
        ]
        if self.unseen:
            rows.append(f"left out: {self.unseen:,} of mappings that begin inside a page")
        if self.same:
            return "\n".join([*rows, f"all {self.matched:,} match, in order"])
        return "\n".join([*rows, f"{self.matched:,} match, then:", self.difference])


def logged(events: Iterable[Event], device: str) -> list[Access]:
    """Return the register accesses of an adapter in a bus log, in order."""
    return [
        Access(event.kind is Kind.MMIO_WRITE, event.bar, event.address, event.data)
        for event in events
        if event.device == device and event.kind in (Kind.MMIO_READ, Kind.MMIO_WRITE)
    ]


def compare(trace: Trace, log: list[Access]) -> Verdict:
    """Compare the kernel's record with the log's, access by access."""
    windows = list(trace.windows)
    whole = list(aligned(windows))
    kernel = [each for each in log if not _by_user(each, windows)]
    seen = [each for each in kernel if any(w.holds(each.bar, each.offset) for w in whole)]
    traced = [each for each in trace.accesses if not _MSIX.holds(each.bar, each.offset)]
    matched = _in_common(traced, seen)
    return Verdict(
        matched,
        len(traced),
        len(seen),
        reads=sum(not each.write for each in traced),
        table=len(trace.accesses) - len(traced),
        user=len(log) - len(kernel),
        unseen=len(kernel) - len(seen),
        difference=_difference(trace, traced, seen, matched),
    )


def _by_user(access: Access, windows: list[Window]) -> bool:
    """Whether user space did it: a UAR page, or its BlueFlame page, that the kernel has not mapped.

    The kernel maps the UAR pages it uses one by one, all BlueFlame pages as one (map_bf_area).
    """
    if access.bar != UAR.bar:
        return False
    page = access.offset % BLUEFLAME.base // PAGE_SIZE
    return not any(window.holds(UAR.bar, page * PAGE_SIZE) for window in windows)


def _in_common(first: list[Access], second: list[Access]) -> int:
    """Length of the common beginning."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))


def _difference(trace: Trace, traced: list[Access], seen: list[Access], place: int) -> str:
    if trace.unread:
        return f"an access the tracer could not read: {trace.unread[0]}"
    if place == len(traced) == len(seen):
        return ""
    begin = max(0, place - 1)
    rows = zip_longest(traced[begin : place + 2], seen[begin : place + 2])
    return "\n".join(
        f"  {'*' if number == place else ' '} {number + 1}: kernel {one or 'nothing'!s}"
        f" | log {other or 'nothing'!s}"
        for number, (one, other) in enumerate(rows, begin)
    )
