"""One guest's QEMU misbehaves on its socket: the other guest's device answers as ever."""

from __future__ import annotations

import time
from pathlib import Path

from bluebridge.device.pyvfio_user._message_filter import MESSAGE_SECONDS
from bluebridge.host_tools.vfio_user.bus import WireBus
from bluebridge.host_tools.vfio_user.messages import VfioUserCommand
from tests.wire.server import ServerProcess


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
