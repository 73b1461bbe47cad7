"""Descriptors of every kind, and attacks with what takes long: reads that fit nowhere, closes.

They go through the socket of the InfiniBand adapter, whose client comes and goes meanwhile.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, IrqFlag
from tests.hostile.guest import INFINIBAND, HostileGuest
from tests.wire.lingering import LingeringSockets, send_last

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


MUCH: Final = 256 << 20
"""Bytes of a file of memory."""
TRIGGER: Final = struct.pack("<IIIII", 20, IrqFlag.DATA_NONE | IrqFlag.TRIGGER, MSIX, 0, 1)


def long_reads(guest: HostileGuest, count: int) -> int:
    """Reads of up to a MiB, whose replies no socket would hold."""
    chance, client = guest.chance, guest.infiniband
    for _ in range(count):
        region, length = chance.choice((0, 2, CONFIG)), 8193 << chance.randrange(8)
        where = struct.pack("<QII", 0, region, length)
        client.send(client.pack(VfioUserCommand.REGION_READ, where))
        client.receive()
    return count


def slow_closes(guest: HostileGuest, count: int) -> int:
    """Descriptors whose close takes a minute, with any message, of many clients in turn."""
    chance = guest.chance
    with LingeringSockets() as sockets:
        for _ in range(count):
            command = VfioUserCommand(chance.randrange(2, 15))
            _leave_behind(guest, sockets.make(), command, chance.randbytes(32))
    _call_again(guest)
    return count


def much_memory(guest: HostileGuest, count: int) -> int:
    """Files of `MUCH` bytes in memory that nobody else has open, mapped or refused."""
    for number in range(count):
        fd = sealed_memory(MUCH)
        os.posix_fallocate(fd, 0, MUCH)
        body = struct.pack("<IIQQQ", 32, 3, 0, 1 << 40, MUCH)
        _leave_behind(guest, fd, VfioUserCommand(2 if number & 1 else 4), body)
    _call_again(guest)
    return count


def blocking_eventfds(guest: HostileGuest, count: int) -> int:
    """Interrupts that are full and block, triggered by their owner."""
    for _ in range(count):
        (event,) = full_eventfd()
        with suppress(OSError):
            client = _call_again(guest)
            client.enable_irqs(MSIX, [event])
            os.set_blocking(event, True)
            client.request(VfioUserCommand.SET_IRQS, TRIGGER)
        os.close(event)
    _call_again(guest)
    return count


def _leave_behind(guest: HostileGuest, fd: int, command: VfioUserCommand, body: bytes) -> None:
    """A client sends a message with the descriptor, if it is let in, and waits for the answer."""
    with suppress(OSError):
        guest.infiniband.close()
        guest.infiniband = Client(guest.folder / INFINIBAND, timeout=0.5)
    message = guest.infiniband.pack(command, body)
    with suppress(OSError):
        send_last(guest.infiniband, message, fd)
        guest.infiniband.receive()


def _call_again(guest: HostileGuest) -> Client:
    guest.infiniband.close()
    guest.infiniband = Client(guest.folder / INFINIBAND)
    return guest.infiniband
