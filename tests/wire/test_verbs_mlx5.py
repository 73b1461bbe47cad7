"""The ConnectX-5 keeps the contract of verbs, over the real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bluebridge.guest.providers import open_device
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import devices as serving_devices
from tests.models.verbs.contract import Devices, VerbsContract


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sockets of a server of two ConnectX-5 for all tests, which raises nothing."""
    folder = tmp_path_factory.mktemp("mlx5")
    with serving_devices(folder, "--card", "connectx5"):
        yield folder


class TestConnectX5(VerbsContract):
    """Two ConnectX-5 of one server, and the loopback of one."""

    @pytest.fixture(params=["two adapters", "loopback"])
    def devices(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Devices]:
        """Both adapters, or one of them twice, by the interface."""
        with ExitStack() as stack:
            buses = [stack.enter_context(closing(SocketBus(folder / name))) for name in "ab"]
            a, b = (stack.enter_context(open_device(bus)) for bus in buses)
            yield a, (b if request.param == "two adapters" else a)
