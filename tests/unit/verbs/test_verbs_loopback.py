"""The loopback provider of the tests keeps the contract of verbs."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import Device, DeviceLost
from tests.models.verbs.contract import Devices, VerbsContract
from tests.models.verbs.loopback import LoopbackDevice, Network


class TestLoopback(VerbsContract):
    """Two devices of one network."""

    @pytest.fixture
    def devices(self) -> Devices:
        """Both ends, by the interface."""
        network = Network()
        first: Device = LoopbackDevice(network)
        return first, LoopbackDevice(network)


def test_a_lost_device_ends_waits() -> None:
    device = LoopbackDevice(Network())
    channel = device.create_comp_channel()
    device.health.lose()
    with pytest.raises(DeviceLost):
        channel.get_event()
