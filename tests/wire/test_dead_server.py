"""The server is killed while guest code waits: every wait ends soon, in one line that says why."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.protocols.krping import host as krping
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import DeviceLost, QpInit, QpType, WrOpcode
from bluebridge.host_tools.lab.hardware import tell
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import connected, driven
from tests.models.server import ServerProcess, functions
from tests.models.until import until
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, Output, Side, both, start
from tests.wire.conftest import StartServer

SECONDS = 5.0
GONE = "mlx4_0: the device is gone (reads return all ones)"
MANY = 1_000_000


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    return start_server("bluebridge.device", *functions(tmp_path))


@pytest.fixture
def mortal(server: ServerProcess, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """krping's two sides on a server that will not live to their end."""
    buses = [SocketBus(tmp_path / name) for name in "ab"]
    outputs = Output(), Output()
    sides = [
        Side(krping.host_of(krping.open_hca(bus), ip, Log(output)), output)
        for bus, ip, output in zip(buses, (SERVER_IP, CLIENT_IP), outputs, strict=True)
    ]
    yield sides[0], sides[1]
    for side, bus in zip(sides, buses, strict=True):
        side.host.close()  # in silence
        bus.close()


def kill_and_clock(server: ServerProcess) -> Callable[[], float]:
    """Kill the server; gives the seconds since then."""
    server.kill()
    killed = time.monotonic()
    return lambda: time.monotonic() - killed


@pytest.mark.brief("validate", f"count={MANY},rlat,poll")
@pytest.mark.parametrize(
    "mode",
    [
        "validate",
        "verbose,mem_mode=dma",
        "mem_mode=reg,server_inv",
        f"count={MANY},wlat",
        f"count={MANY},rlat",
        f"count={MANY},rlat,poll",
        f"count={MANY},bw",
        f"count={MANY},bw,duplex",
    ],
)
def test_krping_at_work(server: ServerProcess, mortal: tuple[Side, Side], mode: str) -> None:
    runs = both(mortal, mode)
    until(lambda: bool(runs[1].running) and runs[1].running[0].iterations > 3)
    elapsed = kill_and_clock(server)
    for run in runs:
        result = run.result()
        assert (result.ok, result.error) == (False, GONE)
    assert elapsed() < SECONDS


def test_krping_that_waits_for_its_peer(server: ServerProcess, mortal: tuple[Side, Side]) -> None:
    """A listening server, a client whose server does not exist, a server whose client is quiet."""
    listening = start(mortal[0], f"server,addr={SERVER_IP},port=9999")
    elapsed = kill_and_clock(server)
    assert listening.result().error == GONE
    assert elapsed() < SECONDS
    again = start(mortal[0], f"server,addr={SERVER_IP},port=9998")
    assert again.result().error == GONE
    resolving = start(mortal[1], f"client,addr={SERVER_IP},port=9999")
    assert resolving.result().error == GONE
    assert elapsed() < 2 * SECONDS


def wait_in_thread(action: Callable[[], object]) -> Callable[[], str]:
    """Run `action` beside the test; the returned call waits for the text of its `DeviceLost`."""
    said: list[str] = []

    def body() -> None:
        try:
            action()
        except DeviceLost as error:
            said.append(str(error))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def outcome() -> str:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it still waits"
        return said[0] if said else "it ended without a word"

    return outcome


def test_waits_for_events_and_commands(server: ServerProcess, tmp_path: Path) -> None:
    """Both kinds of event queues, with and without a time limit; then commands, at once."""
    with driven(tmp_path) as (first, second):
        a, _ = connected(first, second)
        a.cq.req_notify()
        while second.async_events.get_event(0):
            pass  # the port came up
        waits = [
            wait_in_thread(lambda: a.channel.get_event()),
            wait_in_thread(lambda: second.async_events.get_event(60.0)),
        ]
        server.kill()
        assert [outcome() for outcome in waits] == [GONE, GONE]
        begun = time.monotonic()
        add_gid = partial(first.ethernet_port.add_gid, bytes(15) + b"\1")
        for verb in (first.query_port, a.qp.query_state, add_gid):
            with pytest.raises(DeviceLost, match="the device is gone"):
                verb()
        a.send(WrOpcode.RDMA_WRITE, [a.sge()])  # a doorbell nobody hears
        a.qp.destroy()
        a.mr.close()
        assert time.monotonic() - begun < 1.0


def test_a_command_under_way(server: ServerProcess, tmp_path: Path) -> None:
    """The server stands still while a command waits for it, and then dies."""
    with driven(tmp_path, "a") as (ctx,):
        server.process.send_signal(signal.SIGSTOP)
        outcome = wait_in_thread(ctx.query_port)
        time.sleep(0.05)  # either side of its first read of the register will do
        server.kill()
        assert outcome() == GONE


def test_a_device_that_is_gone_is_not_opened(server: ServerProcess, tmp_path: Path) -> None:
    bus = SocketBus(tmp_path / "a")
    server.kill()
    with pytest.raises(DeviceLost, match="the device is gone"):
        open_hca(bus)
    bus.close()


def test_a_connectx5_that_was_reset_is_lost(start_server: StartServer, tmp_path: Path) -> None:
    """Its command queue is gone: a command waited a minute, and so did each of tear-down."""
    control = tmp_path / "control"
    words = ("--card", "connectx5", "--control", str(control))
    start_server("bluebridge.device", *functions(tmp_path), *words)
    bus = SocketBus(tmp_path / "a")
    device = open_device(bus)
    tell(control, "arm a function-reset")
    begun = time.monotonic()
    with pytest.raises(DeviceLost, match="mlx5_0: the device was reset"):
        device.query_port()
    device.close()
    assert time.monotonic() - begun < SECONDS
    bus.close()


@pytest.mark.parametrize("card", ["connectx3", "connectx5"])
def test_what_is_open_closes_without_the_device(
    start_server: StartServer, tmp_path: Path, card: str
) -> None:
    """A ring of frames at work, its queue, its channel and the device itself, in silence."""
    server = start_server("bluebridge.device", *functions(tmp_path), "--card", card)
    bus = SocketBus(tmp_path / "a")
    device = open_device(bus)
    domain, channel = device.alloc_pd(), device.create_comp_channel()
    cq = device.create_cq(16, channel)
    rings = [domain.create_qp(QpInit(QpType.RAW_ETH, cq, cq, 8, 8)) for _ in range(2)]
    for ring in rings:
        ring.modify_init()
        ring.modify_rtr()
        ring.modify_rts()
    server.kill()
    rings[0].destroy()
    device.close()  # with the other one
    assert channel.get_event(0) is None, "the channel is still open"
    bus.close()
