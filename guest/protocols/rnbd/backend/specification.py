"""Parsing of exports: NAME=FILE, NAME=BLOCK_DEVICE, NAME=ram:SIZE."""

from __future__ import annotations

import re

from bluebridge.guest.protocols.rnbd.backend.file import FileBackend
from bluebridge.guest.protocols.rnbd.backend.ram import RamBackend
from bluebridge.guest.protocols.rnbd.engine.exports import Export

_SIZE = re.compile(r"(\d+)([KMGT]?)", re.ASCII | re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def export_of(words: str) -> Export:
    """Open the export that `words` describe; raises `OSError` and `ValueError`."""
    name, found, what = words.partition("=")
    if not name or not found or not what:
        raise ValueError(f"{words!r} is not NAME=FILE or NAME=ram:SIZE")
    if what.startswith("ram:"):
        return Export(name, RamBackend(size_of(what.removeprefix("ram:"))))
    return Export(name, FileBackend(what))


def size_of(words: str) -> int:
    """Parse a size such as 4096, 256M or 1G into bytes; raises `ValueError`."""
    match = _SIZE.fullmatch(words)
    if match is None:
        raise ValueError(f"{words!r} is no size: write 4096, 256M or 1G")
    return int(match[1]) << _SHIFT[match[2].upper()]
