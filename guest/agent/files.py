"""The operations `put` and `get`, which stream whole files in both directions."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from typing import Any

from bluebridge.guest.agent.frames import PAYLOAD_BYTES, Kind
from bluebridge.guest.agent.served_port import Operation, OperationError, ServedPort

_MODE_BITS = 0o7777


class Put(Operation):
    """Writes the file `path` with `mode`; END tells `size` and `checksum` (CRC-32) of it all.

    A folder as `path`, or a path that ends in /, takes the file under `name`. The content goes to
    a hidden file beside it, which gets its name when it is complete and right.
    """

    def __init__(self, port: ServedPort, number: int, request: dict[str, Any]) -> None:
        super().__init__(port, number)
        path = str(request["path"])
        if os.path.isdir(path) or path.endswith("/"):
            path = os.path.join(path, os.path.basename(str(request.get("name") or "")))
        self._path = os.path.realpath(path)
        self._mode = int(request.get("mode") or 0o644) & _MODE_BITS
        self._partial = ""
        self._fd = -1
        self._size = 0
        self._checksum = 0

    def start(self) -> None:
        """Open the hidden file. Raises `OSError` when the folder is missing or read-only."""
        if os.path.isdir(self._path):
            raise OperationError("EISDIR", f"{self._path}: is a folder")
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise OperationError("request", f"{self._path}: is no regular file")
        folder, name = os.path.split(self._path)
        partial = os.path.join(folder, f".{name[:200]}.{os.urandom(6).hex()}.partial")
        try:
            self._fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            error.filename = self._path
            raise
        self._partial = partial

    def data(self, payload: bytes) -> None:
        """Take the next part of the content."""
        rest = memoryview(payload)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                error.filename = self._path
                raise
        self._size += len(payload)
        self._checksum = zlib.crc32(payload, self._checksum)
        self.consumed(len(payload))

    def end(self, summary: dict[str, Any]) -> None:
        """Check the content at its end, then let the file appear under its name."""
        if (summary["size"], summary["checksum"]) != (self._size, self._checksum):
            raise OperationError("checksum", f"{self._path}: arrived damaged")
        os.fchmod(self._fd, self._mode)
        os.close(self._fd)
        self._fd = -1
        os.rename(self._partial, self._path)
        self._partial = ""
        self.done(path=self._path, size=self._size, checksum=self._checksum)

    def abort(self) -> None:
        """Remove the hidden file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._partial:
            with contextlib.suppress(OSError):
                os.unlink(self._partial)
            self._partial = ""


class Get(Operation):
    """Sends the file `path`: SIZE, then DATA; DONE tells `size`, `checksum` (CRC-32) and `mode`."""

    def __init__(self, port: ServedPort, number: int, request: dict[str, Any]) -> None:
        super().__init__(port, number)
        self._path = str(request["path"])
        self._fd = -1
        self._size = 0
        self._checksum = 0

    def start(self) -> None:
        """Open the file; raises `OSError`, `OperationError` for one that is not regular."""
        # A FIFO without a writer must not block the agent.
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._fd)
        if stat.S_ISDIR(status.st_mode):
            raise OperationError("EISDIR", f"{self._path}: is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OperationError("request", f"{self._path}: is no regular file")
        self._mode = stat.S_IMODE(status.st_mode)
        # A file that grows while it is read ends where it ended at first; /proc says 0 for unknown.
        self._limit = status.st_size or None
        self.tell(Kind.SIZE, size=self._limit)
        self.resume()

    def resume(self) -> None:
        """Send as much as the flow control allows."""
        while self._fd >= 0 and self.may_send():
            data = self._read(min(self.allowance, PAYLOAD_BYTES))
            if not data:
                self.abort()
                self.done(size=self._size, checksum=self._checksum, mode=self._mode)
                return
            self._size += len(data)
            self._checksum = zlib.crc32(data, self._checksum)
            self.emit(Kind.DATA, data)

    def _read(self, count: int) -> bytes:
        if self._limit is not None:
            count = min(count, self._limit - self._size)
        try:
            return os.read(self._fd, count) if count else b""
        except OSError as error:
            error.filename = self._path
            raise

    def abort(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
