"""A long message of a real server: others are served while it moves, and guests may leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import QpInit, QpType, SendFlags, SendWr, Sge, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import Player, connected, driven
from tests.models.server import ServerProcess, functions
from tests.models.verbs.player import ALL, PSN

LONG = (28 << 20) + 5
SERVER = tuple[ServerProcess, Path]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SERVER]:
    """A server of its own, since it is stopped in between: its process and its folder."""
    words = [*functions(tmp_path), "--log", str(tmp_path / "log")]
    process = ServerProcess("bluebridge.device", words, tmp_path / "server.log")
    try:
        yield process, tmp_path
        if process.running():
            assert process.terminate() == 0, process.text()
    finally:
        process.kill()
    assert "Traceback" not in process.text(), process.text()
    assert "still held" not in process.text(), process.text()


@contextmanager
def standing_still(server: ServerProcess) -> Iterator[None]:
    """The server reads nothing in the meantime: what is sent to it is there all at once."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


class LongPlayer(Player):
    """A player with memory for a long message, `large`, and a small one that shares its CQ."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.large = ctx.allocate(LONG)
        self.key = self.pd.reg_mr(self.large.address, LONG, access=ALL)
        self.second = self.pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, 16, 16))

    def connect_second(self, peer: LongPlayer) -> None:
        """RESET to RTS of the second queue pair."""
        self.second.modify_init(ALL)
        there = self.device.address_vector(peer.device.address)
        self.second.modify_rtr(there, peer.second.qpn, PSN)
        self.second.modify_rts(PSN)

    def long(self, peer: LongPlayer, opcode: WrOpcode) -> SendWr:
        """A message of all of `large`."""
        piece = Sge(self.large.address, LONG, self.key.lkey)
        request = SendWr(1, opcode, [piece], SendFlags.SIGNALED)
        request.remote_addr, request.rkey = peer.large.address, peer.key.rkey
        return request

    def small(self, peer: LongPlayer) -> SendWr:
        """Eight bytes."""
        request = SendWr(2, WrOpcode.RDMA_WRITE, [self.sge(0, 8)], SendFlags.SIGNALED)
        request.remote_addr, request.rkey = peer.address, peer.mr.rkey
        return request


@pytest.mark.parametrize("opcode", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
def test_a_small_message_overtakes_a_long_one_of_another_queue_pair(
    server: SERVER, opcode: WrOpcode
) -> None:
    process, folder = server
    with driven(folder) as (first, second):
        a, b = LongPlayer(first), LongPlayer(second)
        for one, other in ((a, b), (b, a)):
            one.connect(other)
            one.connect_second(other)
        source, target = (a, b) if opcode is WrOpcode.RDMA_WRITE else (b, a)
        source.large.view[:] = os.urandom(LONG)
        with standing_still(process):
            a.qp.post_send([a.long(b, opcode)])
            a.second.post_send([a.small(b)])
        done = a.expect(WcStatus.SUCCESS, WcStatus.SUCCESS)
        assert [wc.wr_id for wc in done] == [2, 1]
        assert target.large.view == source.large.view
    assert process.terminate() == 0
    events = [event for event in LogReader(folder / "log") if event.kind is Kind.WIRE]
    assert [event.length for event in events if event.what is What.REQUEST] == [LONG, 8]
    assert sum(event.what is What.RESPONSE for event in events) == 2


@pytest.mark.parametrize("leaves", ["a", "b"])
def test_a_guest_may_leave_while_its_memory_is_moving(server: SERVER, leaves: str) -> None:
    process, folder = server
    buses = {name: SocketBus(folder / name) for name in "ab"}
    contexts = {name: open_hca(bus) for name, bus in buses.items()}
    a, b = LongPlayer(contexts["a"]), LongPlayer(contexts["b"])
    a.connect(b, timeout=8, retry_count=2)
    b.connect(a)
    with standing_still(process):
        a.qp.post_send([a.long(b, WrOpcode.RDMA_WRITE)])
        buses[leaves].close()
    if leaves == "b":
        a.expect(WcStatus.RETRY_EXC_ERR)
    with open_hca(SocketBus(folder / leaves)) as again:
        c, d = connected(again, again)
        c.send(WrOpcode.RDMA_WRITE, [c.sge()], d)
        c.expect(WcStatus.SUCCESS)
