"""The format of the bus log on disk: a folder of segments with fixed-size heads of records."""

from __future__ import annotations

import struct

from bluebridge.device.layout.buslog import Kind

RECORD = struct.Struct("<QBBBBIQIIQ")
"""monotonic ns, device, kind, BAR, what, object, address, length, captured bytes after it, work."""

HEAD = struct.Struct("<BBBxIIIII")
"""Of a message of the fabric (`device.buslog.wire`): flags, operation, syndrome, source QPN, PSN,
packets, key, immediate."""

WORK_DEVICE_SHIFT, WORK_QPN_SHIFT = 56, 32
INDEX_MASK = (1 << WORK_QPN_SHIFT) - 1
"""`work` names the work request an event belongs to: device number plus one, QPN, and the slot of
the send queue counted since RESET, from the top; 0 for none."""

TEXT_KINDS = frozenset((Kind.COMMAND, Kind.NOTE, Kind.RESET))
"""Kinds whose data is a line of text."""

INDEX = struct.Struct("<QQQ")
"""Of an entry in a segment's index: number, time and offset of an event. Others follow it."""
INDEX_EVERY = 1024
"""Events between two entries of an index, at least."""

META_NAME = "meta.json"
SEGMENT_GLOB = "events-*.bin"


INDEX_SUFFIX = ".idx"


def segment_name(number: int) -> str:
    """File name of segment `number`, counted from 0."""
    return f"events-{number:06}.bin"
