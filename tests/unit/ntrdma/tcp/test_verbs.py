"""NTRDMA over TCP keeps the contract of verbs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
from bluebridge.guest.verbs import Device
from tests.models.verbs.contract import Devices, VerbsContract

SECONDS = 20.0


def joined() -> tuple[NtrdmaDevice, NtrdmaDevice]:
    """Two devices with a connection between them."""
    server = TcpTransport("s:127.0.0.1:0")
    a = NtrdmaDevice(server)
    b = NtrdmaDevice(TcpTransport(f"c:127.0.0.1:{server.port}"))
    for device in (a, b):
        device.wait_ready(SECONDS)
    return a, b


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    """Both ends, by the interface."""
    a, b = joined()
    first: Device = a
    yield first, b
    b.close()
    a.close()


class TestNtrdma(VerbsContract):
    """Two devices in one process, which the tests share."""

    def test_closing_twice(self, devices: Devices) -> None:
        """With devices of its own."""
        a, b = joined()
        super().test_closing_twice((a, b))
        b.close()
