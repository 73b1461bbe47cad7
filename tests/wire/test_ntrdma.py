"""NTRDMA over the device server's bridges: the contract of verbs, krping, reloads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.guest.ntrdma.engine.transport import Event
from bluebridge.guest.ntrdma.transports.ntb import DmaTransport
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.verbs import Device, QpState, Sge, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, RAM_SIZE
from tests.models.verbs.contract import Devices, VerbsContract
from tests.models.verbs.contract.common import OK, join, with_a_send_that_waits
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, both, side_on
from tests.models.verbs.player import PATTERN, Player, fill
from tests.models.verbs.rtrs_contract import CLIENT, SERVER, RtrsContract, interfaces_on
from tests.wire import ntrdma_pair

NO_MEMORY = RAM_BASE + RAM_SIZE + (1 << 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a running server has its sockets."""
    path = tmp_path_factory.mktemp("ntrdma")
    with ntrdma_pair.server(path):
        yield path


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server whose functions nobody has opened."""
    path = tmp_path_factory.mktemp("another")
    with ntrdma_pair.server(path):
        yield path


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="ntb+dma"),
        pytest.param(False, id="ntb+cpu", marks=pytest.mark.full),
    ],
)
def devices(folder: Path, request: pytest.FixtureRequest) -> Iterator[Devices]:
    """Both ends, which the tests share."""
    with ntrdma_pair.joined(folder, request.param) as (a, b):
        first: Device = a
        yield first, b


class TestNtrdma(VerbsContract):
    """Through the bridge, by DMA engine and by processor."""

    @pytest.fixture
    def devices(self, devices: Devices) -> Devices:
        """By way of the module's fixture."""
        return devices

    def test_closing_twice(self, devices: Devices) -> None:
        """Another test's: the devices are shared here."""


class TestRtrs(RtrsContract):
    """RTRS through the bridge, by DMA engine and by processor."""

    @pytest.fixture
    def ends(self, devices: Devices) -> Iterator[tuple[Interfaces, Interfaces]]:
        """The server's interfaces and the client's."""
        with ExitStack() as stack:
            server = interfaces_on(stack, {SERVER: devices[0]})
            yield server, interfaces_on(stack, {CLIENT: devices[1]})


def hangs(log: Path) -> int:
    """Accesses so far that would have hung the hardware."""
    return sum(event.fact is Fact.BRIDGE_MIGHT_HANG for event in LogReader(log))


def test_krping(another: Path) -> None:
    """Pings with both kinds of registration, and the peer's program ends and begins anew."""
    with ntrdma_pair.joined(another, True) as (a, b):
        sides = side_on(a, SERVER_IP), side_on(b, CLIENT_IP)
        for options in ("size=100000", "mem_mode=reg,server_inv,size=20000"):
            served, asked = (run.result() for run in both(sides, f"count=20,validate,{options}"))
            assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
            assert served.validated == asked.validated == 20
        for side in sides:
            side.host.close()


@pytest.mark.parametrize("dma", [True, False], ids=["ntb+dma", "ntb+cpu"])
def test_the_peer_is_reloaded(another: Path, dma: bool) -> None:
    """Requests that waited for it are flushed; the next peer is found, connections work again."""
    with ntrdma_pair.opened(another, "a", dma) as a:
        for turn in range(2):
            with ntrdma_pair.opened(another, "b", dma) as b:
                for device in (a, b):
                    device.wait_ready(ntrdma_pair.SECONDS)
                x = with_a_send_that_waits(a, b)
            x.expect(WcStatus.WR_FLUSH_ERR)
            assert x.qp.query_state() is QpState.ERR
            events = [event for event, _ in a.async_events]
            assert events.count(Event.PORT_UP) == turn + 1
            assert events.count(Event.PORT_DOWN) == turn + 1
            x.qp.destroy()


def test_a_source_that_is_no_memory(another: Path) -> None:
    """The channel halts; the port recovers by itself, and nothing was written."""
    with ntrdma_pair.joined(another, True) as (a, b):
        x, y = join(Player(a), Player(b))
        fill(x, y)
        nowhere = x.pd.reg_mr(NO_MEMORY, 4096)
        x.send(WrOpcode.RDMA_WRITE, [Sge(NO_MEMORY, 4096, nowhere.lkey)], y)
        (wc,) = x.wait(timeout=10)
        assert wc.status is WcStatus.WR_FLUSH_ERR
        assert bytes(y.view) == PATTERN[::-1]
        for device in (a, b):
            device.wait_ready(ntrdma_pair.SECONDS)
        y.wait_state(QpState.ERR)
        x.reconnect(y)
        y.reconnect(x)
        x.send(WrOpcode.RDMA_WRITE, [x.sge(0, 4096)], y)
        x.expect(OK)


def test_a_receive_leaves_with_the_send_behind_it(another: Path) -> None:
    """Who polls rings the engine once for both; who polls no more has it rung for him."""
    with ntrdma_pair.joined(another, True) as (a, b):
        x, y = join(Player(a), Player(b))
        back_end = a.service.back_end
        assert isinstance(back_end, DmaTransport)
        begun, begin = [0], back_end._channel.begin

        def counted() -> None:
            begun[0] += 1
            begin()

        back_end._channel.begin = counted  # type: ignore[method-assign]
        y.receive()
        with a.service.lock:
            assert x.cq.poll() == []
            before = begun[0]
            x.receive()
            assert begun[0] == before
            x.send(WrOpcode.SEND, [x.sge(0, 64)])
            assert begun[0] == before + 1
        x.expect(OK)
        y.expect(OK)
        assert x.cq.poll() == []
        x.receive()
        y.send(WrOpcode.SEND, [y.sge(0, 64)])
        y.expect(OK)
        x.expect(OK)


def test_no_access_of_the_first_generation_would_have_hung(tmp_path: Path) -> None:
    """Once the ports are ready: NTRDMA's reason to leave doorbells and scratchpads alone."""
    log = tmp_path / "log"
    with (
        ntrdma_pair.server(tmp_path, "--ntb-model", "intel-gen1", "--log", str(log)),
        ntrdma_pair.joined(tmp_path, True) as (a, b),
    ):
        x, y = join(Player(a), Player(b))
        time.sleep(0.3)
        before = hangs(log)
        for _ in range(50):
            y.receive()
            for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND):
                x.send(opcode, [x.sge(0, 64)], y)
                x.expect(OK)
            y.expect(OK)
        time.sleep(0.3)
        assert hangs(log) == before
