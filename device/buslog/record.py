"""The format of the bus log on disk: a folder of segments with fixed-size heads of records."""

from __future__ import annotations

import struct

from device.layout.buslog import Kind

RECORD = struct.Struct("<QBBBBIQII")
"""monotonic ns, device, kind, BAR, what, object, address, length, captured bytes that follow."""

TEXT_KINDS = frozenset((Kind.COMMAND, Kind.NOTE, Kind.RESET))
"""Kinds whose data is a line of text."""

META_NAME = "meta.json"
SEGMENT_GLOB = "events-*.bin"


def segment_name(number: int) -> str:
    """File name of segment `number`, counted from 0."""
    return f"events-{number:06}.bin"
