"""The tree of a file system: directories, files and links, evaluated anew for each request."""

from __future__ import annotations

import errno
import re
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Read = Callable[[], str]
"""The type of a call that returns the text of a file; raises `OSError`."""

_DECIMAL = re.compile(rb"([+-]?)([0-9]+)\n?")
_ANY_BASE = re.compile(rb"\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\n?")


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


Action = Callable[[Answer], None]


def is_word(data: bytes, word: str) -> bool:
    """Return True if `data` is the word, with or without a newline, as sysfs_streq."""
    return _until_zero(data).removesuffix(b"\n") == word.encode()


def parse_int(data: bytes) -> int:
    """Parse 32 bits as kstrtoint with base 10; raises `OSError`: EINVAL, ERANGE."""
    found = _DECIMAL.fullmatch(_until_zero(data))
    if found is None:
        raise OSError(errno.EINVAL, "not a number")
    value = int(found[2]) * (-1 if found[1] == b"-" else 1)
    if not -(1 << 31) <= value < 1 << 31:
        raise OSError(errno.ERANGE, "a number out of range")
    return value


def parse_unsigned(data: bytes) -> int:
    """Parse 64 bits as kstrtoul with base 0; raises `OSError`: EINVAL, ERANGE."""
    found = _ANY_BASE.fullmatch(_until_zero(data))
    if found is None:
        raise OSError(errno.EINVAL, "not a number")
    digits = found[1]
    if digits[:2] in (b"0x", b"0X"):
        value = int(digits, 16)
    else:
        value = int(digits, 8 if digits[:1] == b"0" else 10)
    if value >= 1 << 64:
        raise OSError(errno.ERANGE, "a number out of range")
    return value


def text(value: Callable[[], object]) -> File:
    """Return a file with one line."""
    return File(lambda: f"{value()}\n")


def acting(read: Read, action: Action) -> File:
    """Return a file that acts when "1" is written."""

    def write(data: bytes, answer: Answer) -> None:
        if not is_word(data, "1"):
            raise OSError(errno.EINVAL, "not 1")
        action(answer)

    return File(read, write)


def command(name: str, action: Action) -> File:
    """Return a file that acts when "1" is written, and tells so when it is read."""
    return acting(lambda: f"Usage: echo 1 > {name}\n", action)


def _until_zero(data: bytes) -> bytes:
    """Return the bytes before the first zero, as the kernel takes what is written."""
    return data.partition(b"\0")[0]
