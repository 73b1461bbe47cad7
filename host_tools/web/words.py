"""The words of a log by parts, so that a search passes by the parts that do not have its words.

Two processes gather the words of every activity and step of a long log, unless files beside it
keep them from an earlier time. Each has a line with a checksum, and names of the log and of the
code that gathered them; words behind another line, damaged and missing ones are gathered anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import INDEX_EVERY
from bluebridge.images.cache import PACKAGE

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
        names = ("version", "started_ns", "started_monotonic_ns")  # which another log has otherwise
        log = _digest(json.dumps([reader.meta.get(name) for name in names]).encode())
        self._origin = f"{log} {_code()}"

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


@cache
def _code() -> str:
    """Return a word for the code: another revision may find other words in the same log."""
    paths = sorted(path for name in _CODE for path in (PACKAGE / name).rglob("*.py"))
    return _digest(b"\0".join(path.read_bytes() for path in paths))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


PART = 1 << 15
"""The number of events of a part, the first of which is a multiple of it."""
AFTER = 4096
"""The number of events after a part or page in which its activities may end."""
WORKERS = 2
_MOST_BYTES = 1 << 26
"""The most bytes of packed words that are kept: beyond that a search reads the log itself."""
_FASTEST = 1  # The level of compression


class Words:
    """The words of the parts of a log, as far as they are gathered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[int, bytes] = {}
        self._started = False
        self._room = _MOST_BYTES
        self._lock = threading.Lock()

    def gather(self) -> None:
        """Take the words that are kept, and begin once to gather what is missing of the log."""
        with self._lock:
            if self._started:
                return
            self._started = True
            if self._take_kept():
                return
        for place in range(WORKERS):
            threading.Thread(target=self._take, args=(place,), daemon=True).start()

    def after(self, first: int, texts: Sequence[str]) -> int:
        """Return the first event from `first` on in whose part there may be all of `texts`."""
        while self._lacks(first // PART, texts):
            first = (first // PART + 1) * PART
        return first

    def before(self, end: int, texts: Sequence[str]) -> int:
        """Return the last event up to `end` in whose part there may be all of `texts`."""
        while end and self._lacks((end - 1) // PART, texts):
            end = (end - 1) // PART * PART
        return end

    def _take_kept(self) -> bool:
        """Take the parts that are kept; return whether there is no use in gathering more."""
        kept, size, missing = KeptWords(self._folder), 0, 0
        for part in parts(self._folder):
            packed = kept.part(part)
            if packed is None:
                missing += 1
                continue
            size += len(packed)
            if size > _MOST_BYTES:
                return True
            self._parts[part] = packed
        self._room = _MOST_BYTES - size
        return not missing

    def _lacks(self, part: int, texts: Sequence[str]) -> bool:
        packed = self._parts.get(part)
        if packed is None or not any(texts):
            return False
        words = unpack(packed)
        if words is None:
            return False
        return any(text.encode(errors="replace") not in words for text in texts)

    def _take(self, place: int) -> None:
        """Take parts from a process that ends when nobody reads its answers any more."""
        module = "bluebridge.host_tools.web.word_gatherer"
        command = [sys.executable, "-m", module, str(self._folder), str(place)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            room = self._room // WORKERS
            while room > 0 and (line := process.stdout.readline()):
                part, size = json.loads(line)
                packed = process.stdout.read(size)
                if len(packed) < size:
                    return
                self._parts[part] = packed
                room -= size


def parts(folder: Path) -> range:
    """Return the numbers of the parts that nothing changes any more, as it may the last."""
    end = about_last(folder) - INDEX_EVERY - AFTER
    return range(max(0, end // PART))


def pack(words: set[str]) -> bytes:
    """Return the words of a part as `Words` keeps them."""
    return zlib.compress("\n".join(words).encode(errors="replace"), _FASTEST)
