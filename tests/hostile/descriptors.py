"""Descriptors of every kind that a client may send along."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from random import Random
from typing import Final

from bluebridge.host_tools.vfio_user.client import sealed_memory

SIZE: Final = 1 << 16


def _unsealed() -> list[int]:
    fd = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, SIZE)
    return [fd]


def full_eventfd() -> list[int]:
    """One that blocks whoever adds to it."""
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    os.eventfd_write(fd, 0xFFFF_FFFF_FFFF_FFFE)
    return [fd]


def _sockets() -> list[int]:
    return [each.detach() for each in socket.socketpair()]


def _full_pipe() -> list[int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.write(writing, bytes(1 << 16))
    os.set_blocking(writing, True)
    return [writing, reading]


KINDS: Final[tuple[Callable[[], list[int]], ...]] = (
    lambda: [sealed_memory(SIZE)],
    _unsealed,
    lambda: [os.eventfd(0, os.EFD_CLOEXEC)],
    full_eventfd,
    _sockets,
    _full_pipe,
    lambda: [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)],
    lambda: [os.open("/", os.O_PATH | os.O_CLOEXEC)],
    lambda: [os.dup(0)],
)


def draw(chance: Random) -> list[int]:
    """None mostly, or a few of any kinds; the caller closes them."""
    drawn: list[int] = []
    for _ in range(chance.choice((0, 0, 0, 1, 1, 3, 20))):
        drawn += chance.choice(KINDS)()
    return drawn
