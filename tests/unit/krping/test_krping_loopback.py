"""krping and the connection manager on the loopback provider: neither knows the HCA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bluebridge.guest.protocols.cm import ConnectionManager
from bluebridge.guest.verbs import Device
from tests.models.verbs.krping_contract import KrpingContract, Sides
from tests.models.verbs.krping_pair import CLIENT_IP, SERVER_IP, side_on
from tests.models.verbs.loopback import LoopbackDevice, Network
from tests.models.verbs.loopback.connections import Neighbourhood


class TestLoopback(KrpingContract):
    """Two devices of a network in one process."""

    device_name = "loopback0"

    @pytest.fixture
    def sides(self) -> Iterator[Sides]:
        """On two devices."""
        network, neighbours = Network(), Neighbourhood()

        def connect(device: Device, ip: str, owned: ExitStack) -> ConnectionManager:
            assert isinstance(device, LoopbackDevice)
            manager = neighbours.manager(device, ip)
            owned.callback(manager.close)
            return manager

        server, client = (
            side_on(LoopbackDevice(network), ip, connect) for ip in (SERVER_IP, CLIENT_IP)
        )
        yield server, client
        client.host.close()
        server.host.close()
