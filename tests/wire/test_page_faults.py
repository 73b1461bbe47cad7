"""Page faults of ConnectX-5 of a running server, whose clients play the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from struct import pack
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.guest.verbs.values import RoceAddress
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus
from tests.hostile.connectx5_guest import WireNode
from tests.models.mlx5_node import mac_of
from tests.models.mlx5_pager import Pager
from tests.models.mlx5_pair import V1_INDEX, Pair, SendOpcode, opcodes, remote
from tests.models.server import serving
from tests.models.verbs.player import Player

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


@pytest.mark.parametrize("wire", ["messages", "packets"])
def test_a_connectx3_waits_for_pages_of_a_connectx5(tmp_path: Path, wire: str) -> None:
    """A ConnectX-3 writes, reads and sends to absent pages, and gets what comes from some."""
    words = ["--card", "connectx3,connectx5", "--pro", "--wire", wire, "--no-log"]
    for name, card in ("a", "connectx3"), ("b", "connectx5"):
        mac = mac_of(ord(name) - ord("a") + 1).hex(":")
        words += ["--hca", f"name={name},socket={tmp_path / name},card={card},mac={mac}"]
    ram = Ram(RAM_SIZE)
    with (
        serving("bluebridge.device", words, tmp_path / "server.log"),
        closing(SocketBus(tmp_path / "a")) as bus,
        open_device(bus) as device,
        closing(SocketBus(tmp_path / "b", ram)) as other,
    ):
        b = WireNode(other, ram, 2)
        pair, there, a = b.make_pair(), Pager(b, 8), Player(device)
        number, address = a.qp.qpn, device.address
        _connect(a, pair, number, address)
        key, places = there.key, [there.start + page * 4096 + 8 for page in range(8)]
        a.view[:8] = b"written!"
        for opcode, page in (
            (WrOpcode.RDMA_WRITE, 0), (WrOpcode.RDMA_READ, 1), (WrOpcode.SEND, 2)
        ):  # fmt: skip
            if opcode is WrOpcode.SEND:
                pair.receive(64, key)
                slot = pair.rq.address + (pair.rq.posted - 1) * 64
                b.host.poke(slot + 8, places[page].to_bytes(8, "big"))
            at = 64 if opcode is WrOpcode.RDMA_READ else 0
            a.send(opcode, [a.sge(at, 8)], remote_addr=places[page], rkey=key)
            (fault,) = until(there.faults)
            there.lend(page)
            assert there.resume(fault) is Status.OK
            a.expect(WcStatus.SUCCESS)
        assert there.peek(places[0], 8) == there.peek(places[2], 8) == b"written!"
        assert bytes(a.view[64:72]) == bytes(8)
        target = remote(a.address + 128, a.mr.rkey)
        pair.post(SendOpcode.RDMA_WRITE, target + pack(">IIQ", 8, key, places[3]))
        (fault,) = until(there.faults)
        there.lend(3)
        b.host.poke(there.backing(3) + 8, b"from b..")
        assert there.resume(fault) is Status.OK
        assert opcodes(until(pair.sent)) == [CqeOpcode.REQUEST]
        assert bytes(a.view[128:136]) == b"from b.."


def _connect(player: Player, pair: Pair, number: int, address: bytes) -> None:
    """Connect a queue pair of the guest's Python with one of a node, by RoCE v1."""
    node = SimpleNamespace(gid=address[:16], mac=address[16:])
    pair.connect(cast(Pair, SimpleNamespace(number=number, node=node)), V1_INDEX)
    player.qp.modify_init(player.access)
    player.qp.modify_rtr(RoceAddress(pair.node.gid, pair.node.mac), pair.number, 100)
    player.qp.modify_rts(100)


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
