"""A side of NTRDMA whose window shows only the memory that verbs and rings use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.guest.bus.vectors import Deadline
from bluebridge.guest.drivers.ntb import NtbError
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.ntb import PIECE_BYTES, WINDOW, NtbTransport
from bluebridge.guest.verbs import WrOpcode
from bluebridge.host_tools.vfio_user.bus import RAM_BASE
from tests.models.verbs.contract.common import OK, join
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, both, side_on
from tests.models.verbs.player import PATTERN, Player, fill
from tests.wire import ntrdma_pair

SECRET = b"none of yours"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a running server has its sockets and its log."""
    path = tmp_path_factory.mktemp("registered")
    with ntrdma_pair.server(path, "--log", str(path / "log")):
        yield path


def back_end_of(device: NtrdmaDevice) -> NtbTransport:
    """The way to the peer."""
    back_end = device.service.back_end
    assert isinstance(back_end, NtbTransport)
    return back_end


@pytest.mark.parametrize("dma", [True, False], ids=["ntb+dma", "ntb+cpu"])
def test_everything_runs(folder: Path, dma: bool) -> None:
    """Both ways with a peer whose window shows all: each names its memory as it likes."""
    with ntrdma_pair.joined(folder, dma, registered=True) as ends:
        x, y = join(*map(Player, ends))
        for one, other in ((x, y), (y, x)):
            fill(one, other)
            one.send(WrOpcode.RDMA_WRITE, [one.sge(0, 4096)], other)
            one.expect(OK)
            assert bytes(other.view[:4096]) == PATTERN[:4096]
            one.view[:4096] = bytes(4096)
            one.send(WrOpcode.RDMA_READ, [one.sge(0, 4096)], other)
            one.expect(OK)
            assert bytes(one.view[:4096]) == PATTERN[:4096]
        sides = side_on(ends[0], SERVER_IP), side_on(ends[1], CLIENT_IP)
        for options in ("size=100000", "mem_mode=reg,server_inv,size=20000"):
            served, asked = (run.result() for run in both(sides, f"count=5,validate,{options}"))
            assert (served.validated, asked.validated) == (5, 5), (served.error, asked.error)
        for side in sides:
            side.host.close()


@pytest.mark.parametrize("dma", [True, False], ids=["ntb+dma", "ntb+cpu"])
def test_the_peer_reaches_nothing_else(folder: Path, dma: bool) -> None:
    """Its stores beyond are lost, its loads are ones, and the log tells of each."""
    with ntrdma_pair.joined(folder, dma, registered=True) as (a, b):
        owner, peer = back_end_of(a), back_end_of(b)
        assert owner._shown is not None
        secret = owner.bridge.allocate(4096)  # a's own, behind what the window shows
        secret.view[: len(SECRET)] = SECRET
        offset = secret.address - owner._shown.address
        assert offset >= PIECE_BYTES
        before = told(folder)
        with b.service.lock:
            peer.imm32(RAM_BASE + offset, 0x41414141)
            peer.drain()
        assert peer.bridge.windows[WINDOW].load(offset, len(SECRET)) == b"\xff" * len(SECRET)
        assert bytes(secret.view[: len(SECRET)]) == SECRET
        deadline = Deadline(ntrdma_pair.SECONDS)
        while told(folder) < before + 2:
            assert not deadline.over
            time.sleep(0.1)
        secret.free()


def test_memory_of_verbs_ends_with_the_piece(folder: Path) -> None:
    """One line says so; what is given back is there for the next one."""
    with ntrdma_pair.opened(folder, "a", True, registered=True) as a:
        for _ in range(2):
            memory = a.allocate(PIECE_BYTES // 2)
            with pytest.raises(MemoryError, match="are left of the 0x2000000 that the window"):
                a.allocate(PIECE_BYTES // 2)
            memory.free()


def test_the_first_generation_cannot(tmp_path: Path) -> None:
    """Its windows begin at multiples of their size, which is that of all memory."""
    with (
        ntrdma_pair.server(tmp_path, "--ntb-model", "intel-gen1"),
        pytest.raises(NtbError, match="take a bridge of generation 4"),
        ntrdma_pair.opened(tmp_path, "a", False, registered=True),
    ):
        pass


def told(folder: Path) -> int:
    """Accesses beyond the window that the log tells of."""
    return sum(event.fact is Fact.WINDOW_EXCEEDED for event in LogReader(folder / "log"))
