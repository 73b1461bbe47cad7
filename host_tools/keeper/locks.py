"""Advisory locks on files: held by whoever has the descriptor, gone with the last copy of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class Lock:
    """An open lock file. Copies of the descriptor in other processes hold the lock as well."""

    def __init__(self, path: Path, create: bool = False) -> None:
        """Raises `OSError` when there is no such file and `create` is false."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self.descriptor = os.open(path, flags, 0o600)
        self._path = path

    def take(self, shared: bool = False) -> bool:
        """Take the lock if it is free; returns whether it is ours now."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def named(self) -> bool:
        """Whether the path still leads to this file, and not to a newer one or to none."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self._path), os.fstat(self.descriptor))
        return False

    def close(self) -> None:
        """Let go of it in this process; twice does no harm."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
