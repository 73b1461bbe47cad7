"""Descriptors that a client sends: which may be used, and how the others are closed.

A file of a client's choice can do more harm than its bytes: memory that a truncated or full file
no longer has ends the process (SIGBUS), a pipe or a file of a FUSE server blocks whoever writes to
it, and the latter even whoever closes it. So a file is mapped only if it is sealed against that,
and an interrupt goes to an eventfd only.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from typing import Final

NOT_SEALED: Final = (
    "refused to map memory that can vanish: it must be a memfd with F_SEAL_SHRINK, as QEMU's "
    "memory-backend-memfd is (share=on, seal=on)"
)
NO_EVENTFD: Final = "refused an interrupt that is no eventfd"
MOST_CLOSING: Final = 8
"""Threads that may hang in a close; with so many, no more descriptors are accepted."""


def memory_fault(fds: Sequence[int], length: int, complain: Callable[[str], None]) -> int:
    """The errno to refuse these as the file of `length` bytes of memory with, 0 for none.

    Only F_GET_SEALS asks nothing of the file's file system; the size comes after it.
    """
    if not fds:
        return 0
    if len(fds) > 1:
        return errno.EINVAL
    seals = _seals(fds[0])
    if seals < 0 or not seals & fcntl.F_SEAL_SHRINK:
        complain(NOT_SEALED)
        return errno.EINVAL
    return 0 if os.fstat(fds[0]).st_size >= length else errno.EINVAL


def interrupt_fault(fds: Sequence[int], complain: Callable[[str], None]) -> int:
    """The errno to refuse these as interrupts with, else 0; writing to them then never blocks."""
    for fd in fds:
        if not _is_eventfd(fd):
            complain(NO_EVENTFD)
            return errno.EINVAL
    for fd in fds:
        os.set_blocking(fd, False)
    return 0


def _seals(fd: int) -> int:
    """F_SEAL_* of a file, -1 if it is not memory."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return -1


def _is_eventfd(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventfd]"


def close_memory(fd: int) -> None:
    """Close the file of memory that is no longer mapped, in a thread if there can be one.

    Whoever closes it last gives all its pages back: a tenth of a second for each GiB.
    """
    try:
        _thread.start_new_thread(os.close, (fd,))  # threading would wait until the thread runs
    except RuntimeError:  # the machine or the user has no thread left
        os.close(fd)


class Closer:
    """Closes descriptors: of unknown files in threads, so that a close that hangs holds nobody."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._closing = 0
        self._waiting: list[int] = []
        """Those for which no thread could be started yet."""

    def ready(self) -> bool:
        """Whether there is a thread left; without one, descriptors must not be accepted."""
        self._start()
        return not self._waiting and self._closing < MOST_CLOSING

    def close(self, fds: Sequence[int]) -> None:
        """Close memory and eventfds now, other files soon: at the next call, without a thread."""
        for fd in fds:
            if _seals(fd) >= 0 or _is_eventfd(fd):
                os.close(fd)
            else:
                self._waiting.append(fd)
        self._start()

    def _start(self) -> None:
        """Close those that wait, in a thread if one can be had."""
        fds = self._waiting
        if not fds:
            return
        with self._lock:
            self._closing += 1
        try:
            _thread.start_new_thread(self._close, (fds,))
        except RuntimeError:  # the machine or the user has no thread left
            with self._lock:
                self._closing -= 1
        else:
            self._waiting = []

    def _close(self, fds: list[int]) -> None:
        try:
            for fd in fds:
                os.close(fd)
        finally:
            with self._lock:
                self._closing -= 1


closer: Final = Closer()
"""One for the process: its clients share the threads."""
