"""The words of a log's parts, kept in a folder beside it, so that they are gathered once.

A file has the words of a part behind a line with their checksum, and names of the log and of the
code that gathered them. Words behind another line, damaged ones and missing ones are gathered anew;
where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from bluebridge.device.buslog.reader import LogReader
from bluebridge.images.source import PACKAGE

FOLDER = "words"
_MOST_WORDS = 1 << 26
"""The most bytes of the words of a part, which a file from elsewhere may claim to have."""
_MOST_PACKED = 1 << 24
_LONGEST_LINE = 80
_CODE = ("device/buslog", "device/layout", "host_tools/analyzer", "host_tools/web")
"""The folders whose code decides which words a log has."""


class KeptWords:
    """The files with the words of a log; raises `LogError` for a folder without a log."""

    def __init__(self, folder: Path) -> None:
        reader = LogReader(folder)
        self._folder = reader.folder / FOLDER
        self._origin = f"{_of(reader.meta)} {_code()}"

    def part(self, number: int) -> bytes | None:
        """Return the packed words of a part; None where there are none that are of use."""
        try:
            with self._path(number).open("rb") as file:
                line, packed = file.readline(_LONGEST_LINE), file.read(_MOST_PACKED)
        except OSError:
            return None
        return packed if line == self._line(packed) else None

    def keep(self, number: int, packed: bytes) -> None:
        """Write the packed words of a part, if the folder can be written to."""
        path = self._path(number)
        fresh = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            fresh.write_bytes(self._line(packed) + packed)
            fresh.replace(path)

    def _line(self, packed: bytes) -> bytes:
        return f"{self._origin} {zlib.crc32(packed):08x}\n".encode()

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06}.words"


def unpack(packed: bytes) -> bytes | None:
    """Return the words of a part; None if they are damaged."""
    stream = zlib.decompressobj()
    try:
        words = stream.decompress(packed, _MOST_WORDS)
    except zlib.error:
        return None
    return words if stream.eof and not stream.unused_data else None


def _of(meta: dict[str, Any]) -> str:
    """Return a word for a log: another one that is written into the folder has another."""
    names = ("version", "started_ns", "started_monotonic_ns")
    return _digest(json.dumps([meta.get(name) for name in names]).encode())


@cache
def _code() -> str:
    """Return a word for the code: another revision may find other words in the same log."""
    paths = sorted(path for name in _CODE for path in (PACKAGE / name).rglob("*.py"))
    return _digest(b"\0".join(path.read_bytes() for path in paths))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
