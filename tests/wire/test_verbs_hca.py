"""The HCA keeps the contract of verbs, over the real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.guest.providers import open_device
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.verbs.contract import Devices, VerbsContract


class TestHca(VerbsContract):
    """Two HCAs of one server."""

    @pytest.fixture
    def devices(self, hca_buses: tuple[WireBus, WireBus]) -> Iterator[Devices]:
        """Both HCAs, by the interface."""
        with open_device(hca_buses[0]) as a, open_device(hca_buses[1]) as b:
            yield a, b
