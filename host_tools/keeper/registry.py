"""The registry of pairs: each has a locked folder in the runtime root while its keeper lives.

The folder `bluebridge-UID-NUMBER` (mode 0700) holds `lock`, `pair.json` and the control socket. It
is locked under another name and then renamed, so a folder whose lock is free was left by a killed
keeper, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.lab.roots import runtime_root
from bluebridge.printable import printable


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


class Entry:
    """The folder of a pair in the registry."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.folder = folder
        self.lock = folder / "lock"
        self.control = folder / "control.sock"
        """The path of the keeper's control socket."""
        self.description = folder / "pair.json"
        """The path of the file with the `PairRecord` of the pair."""

    def alive(self) -> bool:
        """Whether the pair's keeper runs, or the folder of an ended one is still being removed."""
        try:
            with Lock(self.lock) as lock:
                return not lock.take(shared=True)
        except OSError:
            return False

    def record(self) -> PairRecord | None:
        """Return the keeper's record of its pair; None when the pair has just gone."""
        with contextlib.suppress(OSError):
            return PairRecord.read(self.description)
        return None

    def clear(self) -> None:
        """Remove the folder of a dead keeper; an entry in use is left alone."""
        with contextlib.suppress(OSError), Lock(self.lock) as lock:
            # Another process may have cleared it since, and a new pair taken the number.
            if lock.take() and lock.named():
                import shutil  # seldom needed, and it takes a while

                shutil.rmtree(self.folder, ignore_errors=True)


def living() -> list[Entry]:
    """Return this user's pairs in this runtime root, by number; remove the folders of dead ones."""
    entries = [Entry(number, path) for number, path in _numbered() if _ours(path)]
    alive = []
    for entry in entries:
        if entry.alive():
            alive.append(entry)
        else:
            entry.clear()
    return alive


def pairs() -> Iterator[tuple[Entry, PairRecord]]:
    """Yield the pairs that run, start or end, with their records, by number."""
    for entry in living():
        if (found := entry.record()) is not None:
            yield entry, found


def strangers() -> list[str]:
    """Return what has the name of a pair of this user and is none: each path with its owner."""
    found = []
    for _, path in _numbered():
        with contextlib.suppress(OSError):
            if not _ours(path):
                found.append(printable(f"{path} (of user {path.lstat().st_uid})"))
    return found


def _numbered() -> list[tuple[int, Path]]:
    """Return the numbers and paths in the runtime root that are named as this user's pairs are."""
    pattern = re.compile(re.escape(prefix()) + r"([0-9]{1,9})")
    matches = [(pattern.fullmatch(path.name), path) for path in runtime_root().iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match is not None)


def prefix() -> str:
    """Return the beginning of the names of this user's pairs."""
    return f"bluebridge-{os.getuid()}-"


def _ours(path: Path) -> bool:
    """Whether the path is a folder of this user: anybody may make one in /tmp."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
