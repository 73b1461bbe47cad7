"""The tree of a file system: directories, files and links, evaluated anew for each request."""

from __future__ import annotations

import errno
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Read = Callable[[], str]
"""The type of a call that returns the text of a file; raises `OSError`."""


class Answer:
    """The answer that a writer waits for; `done` is called once, by any thread, now or later."""

    def __init__(self, send: Callable[[int], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._over = False
        self._interrupted = False
        self._cancel: Callable[[], None] | None = None

    def done(self, errno: int = 0) -> None:
        """End the write with 0 or a positive errno; a second call does nothing."""
        with self._lock:
            over, self._over = self._over, True
        if not over:
            self._send(errno)

    def on_interrupt(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` when a signal comes for the writer, or has come."""
        with self._lock:
            self._cancel = cancel
            early = self._interrupted
        if early:
            cancel()

    def interrupt(self) -> None:
        """Note that a signal came for the writer."""
        with self._lock:
            self._interrupted = True
            cancel = None if self._over else self._cancel
        if cancel is not None:
            cancel()


Write = Callable[[bytes, Answer], None]
"""The type of a call that takes one write's bytes; raises `OSError` for an answer at once."""


@dataclass(frozen=True, slots=True)
class File:
    """A text file; without `read` or `write` nobody can open it for that, not even root.

    `size` is what stat says. The true one is unknown before a read; but sendfile, busybox's way to
    cat, takes nothing out of an empty file.
    """

    read: Read | None = None
    write: Write | None = None
    size: int = 4096
    mode: int | None = None
    """The permission bits; None for 0644, 0444 or 0200."""

    @property
    def full_mode(self) -> int:
        """The type and permission bits."""
        if self.mode is not None:
            return stat.S_IFREG | self.mode
        return stat.S_IFREG | (0o444 if self.read else 0) | (0o200 if self.write else 0)


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str
    full_mode = stat.S_IFLNK | 0o777

    @property
    def size(self) -> int:
        """The bytes of the target."""
        return len(self.target.encode())


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory; `children` is called for each look-up."""

    children: Callable[[], Mapping[str, Node]]
    full_mode = stat.S_IFDIR | 0o755
    size = 0


Node = Directory | File | Link


def directory(children: Mapping[str, Node]) -> Directory:
    """Return a directory that always has the same children."""
    return Directory(lambda: children)


def find(root: Directory, path: Sequence[str]) -> Node:
    """Return the node at `path`; raises `OSError`: ENOENT, ENOTDIR."""
    node: Node = root
    for name in path:
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, name)
        try:
            node = node.children()[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, name) from None
    return node
