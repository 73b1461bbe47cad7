"""Packs collected events into records, outside of the path of messages.

An event is a tuple in the order of `RECORD`, its data last. The tuple of a fabric message is
longer: after `work` come the values of `HEAD`, then the bytes before the payload (`ROUTE` and so on
in device/buslog/wire.py), then the payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from struct import Struct
from typing import Any

from bluebridge.device.buslog.record import HEAD, RECORD

LogEntry = tuple[Any, ...]
WHEN, KEPT, PAYLOAD = 0, 8, -1
"""Indices of an entry's items; `KEPT` counts all bytes after the `RECORD`."""

CAPTURE = 64
"""Bytes of data of an event that are kept by default."""

_EVENT = 11  # items of an event's tuple
_HEADS = 10  # values of a record
_COPIED = 256  # payloads up to this size are packed in one call
# One call packs a record with its data, so there is a packer for each size.
_PACK = tuple(Struct(f"{RECORD.format}{size}s").pack for size in range(CAPTURE + 1))
_MESSAGE = RECORD.format + HEAD.format.removeprefix("<")
_pack_event = RECORD.pack
_pack_message = Struct(_MESSAGE).pack


def packed(entries: Iterable[LogEntry]) -> bytes:
    """The records of `entries`, concatenated."""
    return b"".join(
        [
            _PACK[entry[KEPT]](*entry)
            if len(entry) == _EVENT and entry[KEPT] <= CAPTURE
            else _packed(entry)
            for entry in entries
        ]
    )


def _packed(entry: LogEntry) -> bytes:
    """The record of a message, or of an event with much data."""
    if len(entry) == _EVENT:
        data: bytes = entry[PAYLOAD]
        return _pack_event(*entry[:_HEADS]) + data
    *head, before, payload = entry
    if len(payload) <= _COPIED:
        return _packer(len(before), len(payload)).pack(*entry)
    return b"".join((_pack_message(*head), before, payload))


@cache
def _packer(before: int, payload: int) -> Struct:
    """Packs a message with `before` bytes before its payload; both sizes have few values."""
    return Struct(f"{_MESSAGE}{before}s{payload}s")
