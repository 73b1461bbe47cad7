"""Fixtures of the wire tests: libvfio-user, and server processes that are cleaned up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import PATTERN, connected
from tests.models.server import ROOT, ServerProcess, devices, serving
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, Side
from tests.wire.krping_pair import opened

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session", autouse=True)
def vfio_user_library() -> Path:
    """libvfio-user.so: the one the environment names, else built (or found built) by `images`."""
    if not os.environ.get(ENVIRONMENT):
        from bluebridge.images.artefacts import Artefacts

        os.environ[ENVIRONMENT] = str(Artefacts().libvfio_user())
    return Path(os.environ[ENVIRONMENT])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The socket of `server`."""
    return tmp_path_factory.mktemp("probe") / "probe"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[ServerProcess]:
    """A server of the probe device for all tests of a file: it lives on, whoever called."""
    with serving("tests.models.probe_device", [str(path)], path.with_name("server.log")) as server:
        yield server


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """`start_server(module, *arguments, cwd=folder)`; what still runs at the end must obey SIGTERM.

    A server that has crashed in the meantime fails the test with its last words.
    """
    servers: list[ServerProcess] = []

    def start(module: str, *arguments: str, cwd: Path = ROOT) -> ServerProcess:
        log = tmp_path / f"server{len(servers)}.log"
        servers.append(ServerProcess(module, arguments, log, cwd=cwd))
        return servers[-1]

    yield start
    for server in servers:
        try:
            ended = server.process.poll()
            if ended is not None and ended < 0 and not server.killed:
                pytest.fail(f"the server was ended by signal {-ended}:\n{server.text()}")
            if ended is None:
                assert server.terminate() == 0, server.text()
        finally:
            server.kill()


@pytest.fixture(scope="session")
def hca_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """The device server with HCAs `a` and `b`, shared by all tests: its process and its folder."""
    folder = tmp_path_factory.mktemp("hca")
    with devices(folder) as server:
        yield server, folder


@pytest.fixture
def hca_buses(hca_server: tuple[ServerProcess, Path]) -> Iterator[tuple[SocketBus, SocketBus]]:
    """A fresh connection to each HCA; what the server says of it in between must not be errors."""
    server, folder = hca_server
    before = len(server.text())
    buses = SocketBus(folder / "a"), SocketBus(folder / "b")
    yield buses
    for bus in buses:
        bus.close()
    assert server.running(), server.text()
    assert "Traceback" not in server.text()[before:], server.text()[before:]


@pytest.fixture
def contexts(hca_buses: tuple[SocketBus, SocketBus]) -> Iterator[tuple[Context, Context]]:
    """Both HCAs brought up by the guest driver."""
    with open_hca(hca_buses[0]) as a, open_hca(hca_buses[1]) as b:
        yield a, b


@pytest.fixture
def attacker(contexts: tuple[Context, Context]) -> Context:
    """The guest that misbehaves."""
    return contexts[0]


@pytest.fixture
def bystanders(contexts: tuple[Context, Context]) -> Iterator[None]:
    """Two queue pairs of the other guest: they work after the test as before it."""
    a, b = connected(contexts[1], contexts[1])
    yield
    a.view[:] = PATTERN
    a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
    a.expect(WcStatus.SUCCESS)
    assert bytes(b.view) == PATTERN


@pytest.fixture
def sides(hca_server: tuple[ServerProcess, Path]) -> Iterator[tuple[Side, Side]]:
    """krping's server side and its client side, with a log to which the server adds no error."""
    server, folder = hca_server
    before = len(server.text())
    with opened(folder / "a", SERVER_IP) as a, opened(folder / "b", CLIENT_IP) as b:
        yield a, b
    assert server.running(), server.text()
    assert "Traceback" not in server.text()[before:], server.text()[before:]
