"""The HCA keeps the contract of verbs, over the real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bluebridge.device.layout.pci import DEVICE_CONNECTX3_PRO
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import functions
from tests.models.verbs.contract import Devices, VerbsContract
from tests.models.verbs.contract.common import OK, join
from tests.models.verbs.player import PATTERN, Player, fill
from tests.wire.conftest import StartServer


class TestHca(VerbsContract):
    """Two HCAs of one server, and the loopback of one."""

    @pytest.fixture(params=["two HCAs", "loopback"])
    def devices(
        self, request: pytest.FixtureRequest, hca_buses: tuple[SocketBus, SocketBus]
    ) -> Iterator[Devices]:
        """Both HCAs, or one of them twice, by the interface."""
        with open_device(hca_buses[0]) as a, open_device(hca_buses[1]) as b:
            yield a, (b if request.param == "two HCAs" else a)


def test_a_connectx3_pro_is_taken(start_server: StartServer, tmp_path: Path) -> None:
    start_server("bluebridge.device", *functions(tmp_path), "--pro")
    with ExitStack() as stack:
        buses = [stack.enter_context(closing(SocketBus(tmp_path / name))) for name in "ab"]
        assert [bus.load_config(2, 2) for bus in buses] == [DEVICE_CONNECTX3_PRO] * 2
        a, b = join(*(Player(stack.enter_context(open_device(bus))) for bus in buses))
        fill(a, b)
        a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
        a.expect(OK)
        assert bytes(b.view) == PATTERN
