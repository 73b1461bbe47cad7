"""The text that mmiotrace writes: mappings, accesses, and where the BARs of a function are.

Linux `kernel/trace/trace_mmiotrace.c: mmio_print_rw`, `mmio_print_map`, `mmio_print_pcidev`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bluebridge.device.layout.pci import HCA_IDS
from bluebridge.host_tools.errors import LabError

PAGE_SIZE = 4096
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
        data = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
        trace.accesses.append(Access(words[0] == "W", *place, data))


def _add_window(trace: Trace, bars: list[Window], words: list[str]) -> None:
    """`MAP time map address virtual length pc pid`."""
    place = _place(bars, int(words[3], 16))
    if place is not None and (window := Window(*place, int(words[5], 16))) not in trace.windows:
        trace.windows.append(window)


def aligned(windows: list[Window]) -> Iterator[Window]:
    """The ranges that begin at a page, which the tracer of Linux 6.12 records by itself."""
    return (window for window in windows if window.offset % PAGE_SIZE == 0)
