"""What the device says of itself, and its end."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import VerbsError
from tests.models.verbs.contract.common import Devices, OnDevices
from tests.models.verbs.player import Player


class TheDevice(OnDevices):
    """What the device says of itself, and its end."""

    def test_what_the_device_says_of_itself(self, devices: Devices) -> None:
        a, b = devices
        attr = a.query_device()
        assert attr.name == a.name
        assert attr.local_inv and attr.fast_reg
        assert a.query_port().active
        assert (a.address == b.address) is (a is b)
        assert not a.health.lost
        a.health.check()
        assert a.port(1) is a
        with pytest.raises(VerbsError, match="has no port 3"):
            a.port(3)

    def test_closing_twice(self, devices: Devices) -> None:
        Player(devices[0])  # is closed with its device
        devices[0].close()
        devices[0].close()
