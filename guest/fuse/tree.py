"""The tree of a file system: directories, files and links, looked at anew for each request."""

from __future__ import annotations

import errno
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Read = Callable[[], str]
"""The text of a file; raises `OSError`."""


class Answer:
    """The answer that a writer waits for; `done` is called once, by any thread, now or later."""

    def __init__(self, send: Callable[[int], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._over = False
        self._interrupted = False
        self._cancel: Callable[[], None] | None = None

    def done(self, errno: int = 0) -> None:
        """The write is over: 0, or a positive errno. A second call does nothing."""
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
        """A signal came for the writer."""
        with self._lock:
            self._interrupted = True
            cancel = None if self._over else self._cancel
        if cancel is not None:
            cancel()


Write = Callable[[bytes, Answer], None]
"""Takes what one system call wrote; raises `OSError` for an answer at once."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of text. Without `read` or `write` it cannot be opened for that, by root neither.

    `size` is what stat says. The true one is unknown before a read; but sendfile, busybox's way to
    cat, takes nothing out of an empty file.
    """

    read: Read | None = None
    write: Write | None = None
    size: int = 4096
    mode: int | None = None
    """Permission bits; None: 0644, 0444 or 0200."""

    @property
    def full_mode(self) -> int:
        """Type and permission bits."""
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
        """Bytes of the target."""
        return len(self.target.encode())


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory; `children` is called for each look-up."""

    children: Callable[[], Mapping[str, Node]]
    full_mode = stat.S_IFDIR | 0o755
    size = 0


Node = Directory | File | Link


def directory(children: Mapping[str, Node]) -> Directory:
    """A directory that always has the same children."""
    return Directory(lambda: children)


def find(root: Directory, path: Sequence[str]) -> Node:
    """The node at `path`; raises `OSError`: ENOENT, ENOTDIR."""
    node: Node = root
    for name in path:
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, name)
        try:
            node = node.children()[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, name) from None
    return node
