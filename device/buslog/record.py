"""The file format of the bus log: a folder of segments of records with fixed-size heads."""

from __future__ import annotations

import struct
from typing import Final

RECORD: Final = struct.Struct("<QBBBBIQIIQ")
"""The head of a record.

Its fields are monotonic ns, device, kind, BAR or number of a fact, what, object, address, length,
number of captured bytes after the head, and `work`. Of a fact (device/layout/events.py) the bytes
are the values of its fields.
"""

HEAD: Final = struct.Struct("<BBBxIIIII")
"""Head of a fabric message (device/buslog/wire.py): flags, operation, syndrome, source QPN, PSN,
packets, key, immediate."""

WORK_DEVICE_SHIFT: Final = 56
WORK_QPN_SHIFT: Final = 32
INDEX_MASK: Final = (1 << WORK_QPN_SHIFT) - 1
"""Mask of the slot index in `work`, which names the work request of an event.

From the highest bits on, `work` has the device number plus one, the QPN, and the slot of the send
queue counted since RESET; it is 0 for none.
"""

INDEX: Final = struct.Struct("<QQQ")
"""An entry of a segment's index: number, monotonic ns and file offset of an event."""
INDEX_EVERY: Final = 1024
"""Least number of events between two entries of an index."""

MOST_CAPTURE: Final = 1 << 24
"""Most bytes of a transfer that a log can be told to keep."""

META_NAME: Final = "meta.json"
SEGMENT_GLOB: Final = "events-*.bin"
INDEX_SUFFIX: Final = ".idx"


def segment_name(number: int) -> str:
    """Return the file name of segment `number`, counted from 0."""
    return f"events-{number:06}.bin"


def function_of(device: str) -> str:
    """Return the function of a device of the log: `a` for `a/2`, the second port of `a`."""
    return device.partition("/")[0]


def host_of(device: str) -> str:
    """Return the guest of a device: `a` for `a`, `a/2`, `a.1` and `a.ntb`."""
    return function_of(device).partition(".")[0]
