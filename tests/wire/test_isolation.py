"""One guest's QEMU misbehaves on its socket: the other guest's device answers as ever."""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user._message_filter import MESSAGE_SECONDS
from bluebridge.host_tools.vfio_user.bus import WireBus
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.messages import CONFIG, VfioUserCommand
from tests.wire.server import ServerProcess

REQUESTS = [
    (VfioUserCommand.GET_INFO, struct.pack("<4I", 16, 0, 0, 0)),
    (VfioUserCommand.GET_REGION_INFO, struct.pack("<4IQQ", 32, 0, 0, 0, 0, 0)),
    (VfioUserCommand.REGION_READ, struct.pack("<QII", 0, CONFIG, 256)),
    (VfioUserCommand.RESET, b""),
]
"""Commands whose replies libvfio-user makes."""


@pytest.mark.parametrize(("command", "body"), REQUESTS)
def test_replies_that_nobody_takes_delay_nobody_else(
    hca_server: tuple[ServerProcess, Path], command: VfioUserCommand, body: bytes
) -> None:
    """A full socket ends its client; the server waits for none, as its fixture looks after."""
    greedy, other = Client(hca_server[1] / "a"), WireBus(hca_server[1] / "b")
    greedy.socket.setblocking(False)
    held = len(hca_server[0].held())
    try:
        with pytest.raises(ConnectionError):
            while True:
                with contextlib.suppress(BlockingIOError):
                    greedy.send(greedy.pack(command, body))
                other.read32(0, 0)
        assert len(hca_server[0].held()) == held
    finally:
        greedy.close()
        other.close()


def test_half_a_message_delays_nobody_else(hca_server: tuple[ServerProcess, Path]) -> None:
    stalled, other = WireBus(hca_server[1] / "a"), WireBus(hca_server[1] / "b")
    try:
        other.read32(0, 0)
        stalled.client.send(stalled.client.pack(VfioUserCommand.GET_INFO, bytes(3), size=64))
        begin, reads = time.monotonic(), 0
        while time.monotonic() - begin < MESSAGE_SECONDS:
            other.read32(0, 0)
            reads += 1
        assert reads > 20  # a server that waits for the rest answers one or two
    finally:
        stalled.close()
        other.close()
