"""The text that mmiotrace writes, and how it compares with a bus log: accesses and mappings.

Linux `kernel/trace/trace_mmiotrace.c: mmio_print_rw`, `mmio_print_map`, `mmio_print_pcidev`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.bar0 import MSIX_PBA_OFFSET, MSIX_TABLE_OFFSET
from bluebridge.device.layout.mlx4.uar import BLUEFLAME, PAGE_SIZE, UAR
from bluebridge.device.layout.pci import HCA_IDS
from bluebridge.host_tools.errors import LabError

_IDS = {vendor << 16 | device for vendor, device in HCA_IDS}
_RESOURCES = 7
_FLAGS = 0xF
"""Low bits of a BAR that tell its kind."""


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write of a register as the CPU did it: a place in a BAR, and the bytes there."""

    write: bool
    bar: int
    offset: int
    data: bytes

    def __str__(self) -> str:
        kind = "write" if self.write else "read"
        return f"{kind:5} BAR{self.bar}+{self.offset:#x} {len(self.data)} bytes {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a BAR, `length` bytes from `offset`."""

    bar: int
    offset: int
    length: int

    def holds(self, bar: int, offset: int) -> bool:
        """Whether that byte is inside."""
        return bar == self.bar and self.offset <= offset < self.offset + self.length


@dataclass
class Trace:
    """The accesses to one adapter that mmiotrace saw."""

    accesses: list[Access] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    """The ranges that the kernel mapped, each once, in the order of the first time."""
    unread: list[str] = field(default_factory=list)
    """Lines of accesses by instructions the tracer cannot read."""


def parse(text: str) -> Trace:
    """The adapter's part of a trace.

    Raises `LabError` if the text is no trace of a ConnectX-3, or the tracer lost events.
    """
    lines = text.splitlines()
    bars = _bars(lines)
    trace = Trace()
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] in ("R", "W"):
            _add_access(trace, bars, words)
        elif words[0] == "MAP":
            _add_window(trace, bars, words)
        elif words[0] == "UNKNOWN" and _place(bars, int(words[3], 16)):
            trace.unread.append(line)
        elif words[0] == "MARK" and "Lost" in line:
            lost = line[line.index("Lost") :]
            raise LabError(f"mmiotrace says: {lost}", "give it a larger buffer_size_kb")
    return trace


def _bars(lines: list[str]) -> list[Window]:
    """Where the BARs of the first ConnectX-3 are, as windows of physical memory."""
    for line in lines:
        words = line.split()
        if words[:1] == ["PCIDEV"] and int(words[2], 16) in _IDS:
            starts = [int(word, 16) for word in words[4 : 4 + _RESOURCES]]
            sizes = [int(word, 16) for word in words[4 + _RESOURCES : 4 + 2 * _RESOURCES]]
            return [
                Window(number, start & ~_FLAGS, size)
                for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
                if size
            ]
    raise LabError(
        "this is no trace of a ConnectX-3",
        "give what a guest's /sys/kernel/tracing/trace_pipe printed, from its beginning",
    )


def _place(bars: list[Window], address: int) -> tuple[int, int] | None:
    """BAR and offset of a physical address; None if it belongs to another device."""
    for bar in bars:
        if bar.offset <= address < bar.offset + bar.length:
            return bar.bar, address - bar.offset
    return None


def _add_access(trace: Trace, bars: list[Window], words: list[str]) -> None:
    """`W width time map address value pc pid`."""
    place = _place(bars, int(words[4], 16))
    if place is not None:
        width, value = int(words[1]), int(words[5], 16)
        # A narrow store is told with the whole register it came from.
        data = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        trace.accesses.append(Access(words[0] == "W", *place, data))


def _add_window(trace: Trace, bars: list[Window], words: list[str]) -> None:
    """`MAP time map address virtual length pc pid`."""
    place = _place(bars, int(words[3], 16))
    if place is not None and (window := Window(*place, int(words[5], 16))) not in trace.windows:
        trace.windows.append(window)


def aligned(windows: list[Window]) -> Iterator[Window]:
    """The ranges that begin at a page, which the tracer of Linux 6.12 records by itself."""
    return (window for window in windows if window.offset % PAGE_SIZE == 0)


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
    pairs = enumerate(zip(traced, seen, strict=False))
    different = (place for place, (one, other) in pairs if one != other)
    matched = next(different, min(len(traced), len(seen)))
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
