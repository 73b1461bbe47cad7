"""A function is reset under NTRDMA, as an administrator's `echo 1 > reset` does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.guest.connections import open_connections
from bluebridge.guest.ntrdma.engine.port import SILENT_SECONDS
from bluebridge.guest.ntrdma.engine.transport import Event
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.ntb import DmaTransport, NtbTransport
from bluebridge.guest.protocols.krping.host import Host
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.verbs import WcStatus, WrOpcode
from tests.models.function import WireFunction
from tests.models.verbs.contract.common import OK, join
from tests.models.verbs.krping_contract import SERVER_IP, Output, Run, Side, both
from tests.models.verbs.player import PATTERN, Player, fill
from tests.wire import ntrdma_pair

SECONDS = 20.0
"""The seconds in which both ends must have found each other again."""


@pytest.fixture(scope="module", params=["intel-gen4", "intel-gen1"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where a running server has its sockets and its log."""
    path = tmp_path_factory.mktemp("resets")
    log = path / "log"
    with ntrdma_pair.server(path, "--ntb-model", request.param, "--log", str(log)):
        yield path


def bridge_of(device: NtrdmaDevice) -> WireFunction:
    """The function of a device's bridge."""
    back_end = device.service.back_end
    assert isinstance(back_end, NtbTransport)
    function = back_end.bridge.function
    assert isinstance(function, WireFunction)
    return function


def engine_of(device: NtrdmaDevice) -> WireFunction:
    """The function of a device's DMA engine."""
    back_end = device.service.back_end
    assert isinstance(back_end, DmaTransport)
    function = back_end._engine.function
    assert isinstance(function, WireFunction)
    return function


def ups(device: NtrdmaDevice) -> int:
    """The number of times that the port has come up."""
    return [event for event, _ in device.async_events].count(Event.PORT_UP)


def meets_again(device: NtrdmaDevice, before: int) -> Callable[[], bool]:
    """Whether the port has come up once more."""
    return lambda: ups(device) > before and device.service.engine.ready


def until(device: NtrdmaDevice, condition: Callable[[], bool]) -> None:
    """Wait for what the device's thread brings about."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, device.service.engine.port.reason
        time.sleep(0.02)


def krping_on(device: NtrdmaDevice, owned: ExitStack) -> Side:
    """krping on one end; both have all addresses."""
    manager = open_connections(device, SERVER_IP, owned)
    output = Output()
    return Side(Host(device, manager, Log(output), ExitStack()), output)


def pinging(runs: tuple[Run, Run]) -> Callable[[], bool]:
    """Whether both sides of an endless run are at work."""
    return lambda: all(run.running and run.running[0].iterations for run in runs)


@pytest.mark.brief("intel-gen4-ntb+dma", "intel-gen1-ntb+cpu")
@pytest.mark.parametrize(
    ("dma", "function"),
    [
        pytest.param(True, bridge_of, id="ntb+dma"),
        pytest.param(False, bridge_of, id="ntb+cpu"),
        pytest.param(True, engine_of, id="engine", marks=pytest.mark.long),
    ],
)
def test_both_ends_go_on(
    folder: Path, dma: bool, function: Callable[[NtrdmaDevice], WireFunction]
) -> None:
    """One is reset: what waited is flushed, krping ends, the peer is found again."""
    with ntrdma_pair.joined(folder, dma) as ends, ExitStack() as owned:
        sides = [krping_on(device, owned) for device in ends]
        number = 0 if dma else 1
        a, b = ends[number], ends[1 - number]
        x, y = join(Player(a), Player(b))
        pings = both((sides[number], sides[1 - number]), "")
        until(a, pinging(pings))
        before = ups(a), ups(b)
        x.send(WrOpcode.SEND, [x.sge(0, 64)])  # nobody receives it
        function(a).reset_function()
        (wc,) = x.wait(timeout=SECONDS)
        assert wc.status is WcStatus.WR_FLUSH_ERR
        assert [run.result().error for run in pings] == ["the peer is lost"] * 2
        until(a, meets_again(a, before[0]))
        until(b, meets_again(b, before[1]))
        x.reconnect(y)
        y.reconnect(x)
        fill(x, y)
        x.send(WrOpcode.RDMA_WRITE, [x.sge(0, 4096)], y)
        x.expect(OK)
        assert bytes(y.view[:4096]) == PATTERN[:4096]
    hangs = [each for each in LogReader(folder / "log") if each.fact is Fact.BRIDGE_MIGHT_HANG]
    assert not hangs, f"{len(hangs)} accesses that would have hung the hardware"


@pytest.mark.brief("intel-gen4-ones")
@pytest.mark.parametrize("byte", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_a_reset_that_takes_longer_than_silence(folder: Path, byte: bytes) -> None:
    """The driver looks for its registers while they are off, and programs them once they are on."""
    with ntrdma_pair.joined(folder, True) as ends:
        before = ups(ends[0]), ups(ends[1])
        bridge_of(ends[0]).reset_function(SILENT_SECONDS + 1.5, byte)
        for device, already in zip(ends, before, strict=True):
            until(device, meets_again(device, already))
