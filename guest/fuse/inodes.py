"""The numbers of inodes, and their paths."""

from __future__ import annotations

ROOT = 1
Path = tuple[str, ...]


class Inodes:
    """The inodes: a directory keeps one number, a file gets another at each look-up.

    The kernel holds the lock of an inode while it writes to it, so one inode could not serve
    several writers that each wait for an answer.
    """

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {ROOT: ()}
        self._directories: dict[Path, int] = {}
        self._lookups: dict[int, int] = {}
        self._last = ROOT

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, number: int) -> Path:
        """Return the path that an inode number stands for; raises `KeyError`."""
        return self._paths[number]

    def looked_up(self, path: Path, *, directory: bool) -> int:
        """Return the number for a path, counted until it is forgotten as often."""
        number = self._directories.get(path) if directory else None
        if number is None:
            self._last += 1
            number = self._last
            self._paths[number] = path
            if directory:
                self._directories[path] = number
        self._lookups[number] = self._lookups.get(number, 0) + 1
        return number

    def forget(self, number: int, lookups: int) -> None:
        """Take back `lookups` look-ups, which the kernel forgets."""
        left = self._lookups.get(number, 0) - lookups
        if number == ROOT or number not in self._lookups:
            return
        if left > 0:
            self._lookups[number] = left
            return
        del self._lookups[number]
        path = self._paths.pop(number)
        if self._directories.get(path) == number:
            del self._directories[path]
