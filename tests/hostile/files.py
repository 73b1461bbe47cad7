"""Attacks with what takes long: reads that fit nowhere, closes.

They go through the socket of the InfiniBand adapter, whose client comes and goes meanwhile.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Final

from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, IrqFlag
from tests.hostile.guest import INFINIBAND, HostileGuest
from tests.models.descriptors import full_eventfd
from tests.models.lingering import LingeringSockets, send_last
from tests.models.server import next_client

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
        event = full_eventfd()
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
    guest.infiniband = next_client(guest.folder / INFINIBAND)
    return guest.infiniband
