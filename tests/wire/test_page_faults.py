"""Page faults of ConnectX-5 of a running server, whose clients play the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus
from tests.hostile.connectx5_guest import WireNode
from tests.models.mlx5_node import mac_of
from tests.models.mlx5_pager import Pager
from tests.models.mlx5_pair import Pair, SendOpcode, opcodes, remote
from tests.models.server import serving

Found = TypeVar("Found")

RAM_SIZE = 32 << 20
SECONDS = 20.0
COUNT = 40


@pytest.fixture(params=["messages", "packets"])
def guests(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[WireNode, WireNode]]:
    """Two guests of one server, which raises nothing; its log is in `log`."""
    words = ["--card", "connectx5", "--wire", request.param, "--log", str(tmp_path / "log")]
    for number, name in enumerate("ab", 1):
        mac = mac_of(number).hex(":")
        words += ["--hca", f"name={name},socket={tmp_path / name},mac={mac}"]
    with serving("bluebridge.device", words, tmp_path / "server.log") as server:
        rams = Ram(RAM_SIZE), Ram(RAM_SIZE)
        buses = [SocketBus(tmp_path / name, ram) for name, ram in zip("ab", rams, strict=True)]
        with closing(buses[0]), closing(buses[1]):
            yield WireNode(buses[0], rams[0], 1), WireNode(buses[1], rams[1], 2)
    assert "Traceback" not in server.text(), server.text()


def until(look: Callable[[], Found]) -> Found:
    """Look until something is found; it."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    return found


def connected(a: WireNode, b: WireNode) -> tuple[Pair, Pair]:
    """Two connected queue pairs."""
    pairs = a.make_pair(), b.make_pair()
    pairs[0].connect(pairs[1])
    pairs[1].connect(pairs[0])
    return pairs


def _answered(log: Path) -> int:
    """How many page faults a log has that ended well."""
    told = [event.told for event in LogReader(log) if event.fact is Fact.PAGE_FAULT]
    return sum(each is not None and each.values["status"] == "OK" for each in told)


def test_writes_to_absent_pages_of_a_running_server(
    guests: tuple[WireNode, WireNode], tmp_path: Path
) -> None:
    a, b = guests
    sender, _ = connected(a, b)
    there = Pager(b, COUNT)
    for page in range(COUNT):
        address = there.start + page * 4096 + 8
        sender.post(SendOpcode.RDMA_WRITE, remote(address, there.key) + sender.data(b"%d" % page))
        (fault,) = until(there.faults)
        there.lend(page)
        assert there.resume(fault) is Status.OK
        assert opcodes(until(sender.sent)) == [CqeOpcode.REQUEST]
        assert there.peek(address, len(b"%d" % page)) == b"%d" % page
    assert until(lambda: _answered(tmp_path / "log") == COUNT)  # it is written a moment later


def test_a_client_that_never_answers_leaves_with_its_page_fault(
    guests: tuple[WireNode, WireNode],
) -> None:
    """Others go on, and the adapter serves its next client as a new one."""
    a, b = guests
    sender, _ = connected(a, b)
    other, _ = connected(a, b)
    there = Pager(b, 8)
    sender.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + sender.data(b"x"))
    until(there.faults)
    key = b.make_key((), remote_write=1)
    place = b.memory(8)
    other.post(SendOpcode.RDMA_WRITE, remote(place, key) + other.data(b"meanwhile"[:8]))
    until(lambda: b.host.peek(place, 8) == b"meanwhil")
    assert b.status(Opcode.TEARDOWN_HCA) is Status.OK
    assert b.status(Opcode.INIT_HCA) is Status.OK
    assert not sender.sent()
