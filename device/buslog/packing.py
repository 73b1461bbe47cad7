"""Records out of events that were only noted down: what the log does when no message waits.

An event is a tuple in the order of `RECORD`, its data last. A message of the fabric is a longer
one: behind `work` come the values of `HEAD`, then what stands before the payload (the route and the
like), then the payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from struct import Struct
from typing import Any

from bluebridge.device.buslog.record import HEAD, RECORD

Entry = tuple[Any, ...]
WHEN, KEPT, PAYLOAD = 0, 8, -1
"""Places in an entry; `KEPT` counts all bytes that follow the `RECORD`."""

CAPTURE = 64
"""Bytes of data that are kept unless somebody wants more."""

_EVENT = 11
_HEADS = 10  # values of a record
_MUCH = 256
# One call packs a record with its data, which is why there is a packer for each size.
_PACK = tuple(Struct(f"{RECORD.format}{size}s").pack for size in range(CAPTURE + 1))
_MESSAGE = RECORD.format + HEAD.format.removeprefix("<")
_pack_event = RECORD.pack
_pack_message = Struct(_MESSAGE).pack


def packed(entries: Iterable[Entry]) -> bytes:
    """The records of `entries`, one behind the other."""
    return b"".join(
        [
            _PACK[entry[KEPT]](*entry)
            if len(entry) == _EVENT and entry[KEPT] <= CAPTURE
            else _packed(entry)
            for entry in entries
        ]
    )


def _packed(entry: Entry) -> bytes:
    """The record of a message, or of an event with much data."""
    if len(entry) == _EVENT:
        data: bytes = entry[PAYLOAD]
        return _pack_event(*entry[:_HEADS]) + data
    *head, before, payload = entry
    if len(payload) <= _MUCH:
        return _packer(len(before), len(payload)).pack(*entry)
    return b"".join((_pack_message(*head), before, payload))


@cache
def _packer(before: int, payload: int) -> Struct:
    """Of a message with so many bytes before its payload, of which there are few kinds."""
    return Struct(f"{_MESSAGE}{before}s{payload}s")
