"""The ConnectX-5 keeps the contract of verbs, and what runs on verbs runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bluebridge.device.layout.ib.mad import MAD_SIZE
from bluebridge.guest.cm.gsi import GsiTransport, roce_port
from bluebridge.guest.cm.interface import Peer
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import QpState, QpType, WcStatus
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import devices as serving_devices
from tests.models.until import until
from tests.models.verbs.contract import Devices, VerbsContract
from tests.models.verbs.contract.common import join
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, KrpingContract, Side
from tests.models.verbs.masked_atomics import masked_atomics
from tests.models.verbs.player import Player
from tests.models.verbs.rtrs_contract import CLIENT, SERVER, RtrsContract
from tests.wire.krping_pair import opened
from tests.wire.test_rtrs import hca_interfaces


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


def test_masked_atomics(folder: Path) -> None:
    with ExitStack() as stack:
        buses = [stack.enter_context(closing(SocketBus(folder / name))) for name in "ab"]
        masked_atomics(*join(*(Player(stack.enter_context(open_device(bus))) for bus in buses)))


class TestKrping(KrpingContract):
    """krping between two ConnectX-5."""

    device_name = "mlx5_0"

    @pytest.fixture
    def sides(self, folder: Path) -> Iterator[tuple[Side, Side]]:
        """The server's side and the client's."""
        with opened(folder / "a", SERVER_IP) as a, opened(folder / "b", CLIENT_IP) as b:
            yield a, b


class TestRtrs(RtrsContract):
    """RTRS between two ConnectX-5."""

    @pytest.fixture
    def ends(self, folder: Path) -> Iterator[tuple[Interfaces, Interfaces]]:
        """The server's interfaces and the client's."""
        with ExitStack() as stack:
            server = hca_interfaces(stack, {SERVER: folder / "a"})
            yield server, hca_interfaces(stack, {CLIENT: folder / "b"})


@pytest.mark.parametrize("state", [QpState.INIT, QpState.RTR])
def test_a_ring_of_frames_fails_before_it_runs(folder: Path, state: QpState) -> None:
    """Its receives come back; from RESET it can be used anew."""
    with closing(SocketBus(folder / "a")) as bus, open_device(bus) as device:
        ring = Player(device, QpType.RAW_ETH)
        for _ in range(2):
            ring.qp.modify_init()
            ring.receive(7, 0, 2048)
            if state is QpState.RTR:
                ring.qp.modify_rtr()
            ring.qp.modify_err()
            (wc,) = ring.wait()
            assert (wc.wr_id, wc.status) == (7, WcStatus.WR_FLUSH_ERR)
            ring.qp.modify_reset()


class _Silent:
    """A resolver that no neighbour answers."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def resolve(self, ip: str, timeout: float = 2.0) -> bytes:
        self.waited.append(timeout)
        raise TimeoutError(f"{ip} does not answer")


def test_strangers_do_not_hold_the_connection_manager_up(folder: Path) -> None:
    """Completions of this card do not tell a sender's MAC address: it is asked for."""
    silent, count = _Silent(), 8
    with ExitStack() as stack:
        ends = []
        for name, ip in ("a", CLIENT_IP), ("b", SERVER_IP):
            bus = stack.enter_context(closing(SocketBus(folder / name)))
            device = stack.enter_context(open_device(bus))
            port = roce_port(device, ip)
            transport = GsiTransport(device, port.gid_index, silent)
            ends.append((port, stack.enter_context(closing(transport))))
        (_, stranger), (port, other) = ends
        for _ in range(count):
            stranger.send(bytes(MAD_SIZE), Peer(port.gid, port.mac))
        stranger.flush(10.0)
        until(lambda: other.receive() == [] and len(silent.waited) == count)
    assert silent.waited.count(0.0) >= count // 2, silent.waited
