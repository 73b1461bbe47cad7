"""Advisory locks on files, held by a descriptor and released with its last copy."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class Lock:
    """An open lock file. Copies of the descriptor in other processes hold the lock as well."""

    def __init__(self, path: Path, create: bool = False) -> None:
        """Open the lock file. Raises `OSError` when there is none and `create` is false."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self.descriptor = os.open(path, flags, 0o600)
        self._path = path

    def take(self, shared: bool = False) -> bool:
        """Take the lock if it is free; return whether it is held now."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def named(self) -> bool:
        """Whether the path still leads to the open file, and not to a newer one or to none."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self._path), os.fstat(self.descriptor))
        return False

    def close(self) -> None:
        """Release the lock in this process; a second call does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
