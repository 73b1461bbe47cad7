"""The file format of the bus log: a folder of segments of records with fixed-size heads."""

from __future__ import annotations

import struct
from typing import Final

from bluebridge.device.layout.buslog import Kind

RECORD: Final = struct.Struct("<QBBBBIQIIQ")
"""monotonic ns, device, kind, BAR, what, object, address, length, captured bytes after it, work."""

HEAD: Final = struct.Struct("<BBBxIIIII")
"""Head of a fabric message (device/buslog/wire.py): flags, operation, syndrome, source QPN, PSN,
packets, key, immediate."""

WORK_DEVICE_SHIFT: Final = 56
WORK_QPN_SHIFT: Final = 32
INDEX_MASK: Final = (1 << WORK_QPN_SHIFT) - 1
"""Fields of `work`, which names the work request of an event: from the highest bits device number
plus one, QPN, and the slot of the send queue counted since RESET; 0 for none."""

TEXT_KINDS: Final = frozenset(
    (Kind.COMMAND, Kind.NOTE, Kind.RESET, Kind.FAULT, Kind.LINK, Kind.CONTROL)
)
"""Kinds whose data is a line of text."""

MARK: Final = b"mark: "
"""How the text of a note begins that is a mark."""
MARK_OF_PAIR, MARK_OF_GUEST = 0, 1
"""The `BAR` of a mark: it is of the whole pair, or of the guest whose device the record names."""

INDEX: Final = struct.Struct("<QQQ")
"""An entry of a segment's index: number, monotonic ns and file offset of an event."""
INDEX_EVERY: Final = 1024
"""Number of events between two entries of an index, at least."""

META_NAME: Final = "meta.json"
SEGMENT_GLOB: Final = "events-*.bin"
INDEX_SUFFIX: Final = ".idx"


def segment_name(number: int) -> str:
    """File name of segment `number`, counted from 0."""
    return f"events-{number:06}.bin"


def function_of(device: str) -> str:
    """The function that a device of the log is part of: `a/2` is the second port of `a`."""
    return device.partition("/")[0]


def host_of(device: str) -> str:
    """The guest of a device: `a` of `a`, `a/2`, `a.1` and `a.ntb`."""
    return function_of(device).partition(".")[0]
