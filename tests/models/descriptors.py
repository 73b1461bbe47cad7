"""Descriptors of every kind, as clients send them beside messages."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from typing import Final

MEMORY: Final = 16 << 20
PAGE: Final = 4096


def _memory(size: int, seals: int) -> int:
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def _pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def full_eventfd() -> int:
    """One that blocks whoever adds to it."""
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    os.eventfd_write(fd, 0xFFFF_FFFF_FFFF_FFFE)
    return fd


KINDS: Final[tuple[Callable[[], int], ...]] = (
    lambda: _memory(MEMORY, fcntl.F_SEAL_SHRINK),
    lambda: _memory(PAGE, fcntl.F_SEAL_SHRINK),
    lambda: _memory(MEMORY, 0),
    lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC),
    _pipe,
    lambda: os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
    lambda: socket.socket(socket.AF_UNIX).detach(),
    full_eventfd,
    lambda: os.open("/", os.O_PATH | os.O_CLOEXEC),
    lambda: os.dup(0),
)
"""By number, as inputs of the fuzzers name them; the caller closes what they make."""
