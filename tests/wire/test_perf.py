"""bluebridge.guest.perf over two HCAs, without guests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bluebridge.guest.connections import open_connections
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.link import CLIENT, SECONDS, SERVER
from bluebridge.guest.perf.sides import PORT, TESTS, WRITE_LAT, Measured, ask, part, serve
from bluebridge.guest.verbs import AccessFlags, Device
from bluebridge.host_tools.analyzer.analysis import PostedBy, transfers
from tests.models.players import driven
from tests.models.server import devices
from tests.wire.conftest import StartServer

TURNS = 10
PSN = 0x1000
_SWITCH_SECONDS = 1e-4
"""Both sides spin in one interpreter."""


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Let the interpreter turn to the other thread soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("use", "ways"),
    [
        (
            BlueFlameUse(),
            [PostedBy.BLUEFLAME, PostedBy.BLUEFLAME, PostedBy.DOORBELL, PostedBy.DOORBELL],
        ),
        (
            BlueFlameUse(wrong_page=True),
            [PostedBy.FALLBACK, PostedBy.FALLBACK, PostedBy.DOORBELL, PostedBy.DOORBELL],
        ),
        (BlueFlameUse(old_size_rule=True), [PostedBy.BLUEFLAME, *[PostedBy.DOORBELL] * 3]),
        pytest.param(None, [PostedBy.DOORBELL] * 4, marks=pytest.mark.full),
    ],
)
def test_each_payload_goes_the_way_it_should(
    use: BlueFlameUse | None, ways: list[PostedBy], start_server: StartServer, tmp_path: Path
) -> None:
    sizes = (1, 208, 209, 4000)
    with hcas(start_server, tmp_path, use) as devices, linked(devices) as client:
        for size in sizes:
            result = ask(client, WRITE_LAT, TURNS, size)
            assert len(result.times) == TURNS and result.times[0] > 0
    seen = list(transfers(tmp_path / "log"))
    for size, way in zip(sizes, ways, strict=True):
        found = [each.posted_by for each in seen if each.length == size]
        assert len(found) == 2 * TURNS
        assert found.count(way) == len(found)


def test_every_test_has_a_figure_in_every_form(start_server: StartServer, tmp_path: Path) -> None:
    with hcas(start_server, tmp_path, None) as devices, linked(devices) as client:
        results = [ask(client, test, TURNS, 64) for test in TESTS]
    for test, result in zip(TESTS, results, strict=True):
        latency = test.endswith("_lat")
        assert result.qperf().startswith(f"{test}:\n    {'latency' if latency else 'bw'}  =  ")
        row = result.perftest().split()
        assert row[:2] == ["64", str(TURNS)] and len(row) == len(result.title.split())
        assert all(value > 0 for value in result.figures().values())


def test_a_client_that_comes_before_its_server_listens(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receives are there again when it asks for the second time."""
    refused = threading.Event()
    with hcas(start_server, tmp_path, None) as devices, ExitStack() as owned:
        server, client = (Measured(device, 4096) for device in devices)
        listener = open_connections(devices[0], SERVER, owned).create_id()
        manager = open_connections(devices[1], CLIENT, owned)

        def listen() -> None:
            assert refused.wait(SECONDS)
            listener.bind_addr(SERVER, PORT)
            listener.listen()
            request = listener.events.get(SECONDS)
            assert request is not None
            server.accept(request)
            serve(server)

        again = client.begin_again

        def begin_again() -> None:
            again()
            refused.set()

        monkeypatch.setattr(client, "begin_again", begin_again)
        thread = threading.Thread(target=listen)
        thread.start()
        client.connect(manager, PORT)
        assert len(ask(client, WRITE_LAT, TURNS, 64).times) == TURNS
        part(client)
        thread.join()


@contextmanager
def hcas(
    start_server: StartServer, folder: Path, use: BlueFlameUse | None
) -> Iterator[list[Device]]:
    """Two HCAs of one server, which has ended well behind it."""
    with devices(folder, "--blueflame", "on"), driven(folder, blueflame=use) as contexts:
        yield [*contexts]


@contextmanager
def linked(devices: list[Device]) -> Iterator[Measured]:
    """The client, linked to a server that takes part in its tests in a thread."""
    links = [Measured(device, 4096, 220) for device in devices]
    access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
    for link, peer, device, there in zip(links, links[::-1], devices, devices[::-1], strict=True):
        link.peer = peer.memory.address, peer.mr.rkey
        link.qp.modify_init(access)
        link.qp.modify_rtr(device.address_vector(there.address), peer.qp.qpn, PSN)
        link.qp.modify_rts(PSN)
    server = threading.Thread(target=serve, args=links[:1])
    server.start()
    try:
        yield links[1]
    finally:
        part(links[1])
        server.join()
