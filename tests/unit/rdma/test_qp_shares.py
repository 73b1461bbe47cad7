"""No guest keeps the server to itself: work comes in portions, and idle queue pairs cost little."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Request
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from tests.models.fake_host import FakeTimer
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote
from tests.unit.rdma.test_qp_datagram import address, ready

HIGH = 0x10000000
BIG = 32 << 20
KEY = 0x5000


def big_pair(rts: dict[str, int] | None = None) -> Pair:
    """Two connected guests with 32 MiB at `HIGH`, behind a key that reaches everything."""
    pair = Pair().connect(rts=rts)
    for node in (pair.a, pair.b):
        node.host.map(HIGH, BIG)
        entry = node.mpt(KEY, 0, (1 << 64) - 1, physical=1)
        node.command(Opcode.SW2HW_MPT, bytes(entry), KEY >> 8)
    return pair


def bytes_per_turn(pair: Pair) -> list[int]:
    """A list that grows by one entry per turn of A's loop: bytes that were asked for in it.

    A datagram and a frame count as one byte.
    """
    turns = [0]
    soon, later = pair.a.host.call_soon, pair.a.host.call_later

    def counted(source: FabricPort, message: Message) -> bool:
        if isinstance(message, Request):
            turns[-1] += message.length
        elif isinstance(message, Datagram):
            turns[-1] += 1
        elif isinstance(message, Frames):
            turns[-1] += sum(len(train.frames) for train in message.trains)
        return True

    def turn(action: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            turns.append(0)
            action()

        return run

    def call_later(seconds: float, action: Callable[[], None]) -> FakeTimer:
        return later(seconds, turn(action))

    pair.watched.watch = counted
    pair.a.host.call_soon = lambda action: soon(turn(action))  # type: ignore[method-assign]
    pair.a.host.call_later = call_later  # type: ignore[method-assign]
    return turns


def test_one_doorbell_moves_no_more_than_its_share() -> None:
    pair = big_pair()
    turns = bytes_per_turn(pair)
    segments = remote(HIGH, KEY) + data((KEY, HIGH, BIG))
    for _ in range(8):
        pair.post_send(SendOpcode.RDMA_WRITE, segments, ring=False)
    pair.a.doorbell(pair.qa.qpn)
    assert sum(turns) <= 2 * BIG
    pair.run()
    assert pair.sent() == [0] * 8
    assert max(turns) <= 2 * BIG


def test_pieces_of_a_message_are_part_of_the_share() -> None:
    pair = big_pair()
    pieces = 2048
    key = pair.a.create_mr(HIGH, pieces * 4096, [HIGH + 8192 * page for page in range(pieces)])
    turns = bytes_per_turn(pair)
    segments = remote(HIGH, KEY) + data((key, HIGH, pieces * 4096))
    for opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ) * 4:
        pair.post_send(opcode, segments, ring=False)
    pair.a.doorbell(pair.qa.qpn)
    pair.run()
    assert pair.sent() == [0] * 8
    assert sum(turns) == 8 * pieces * 4096
    assert max(turns) <= 3 * pieces * 4096


def test_datagrams_are_part_of_the_share_with_every_copy() -> None:
    pair = Pair(ServiceType.UD, rq_shift=6)
    ready(pair.a, pair.qa)
    gid, members = bytes.fromhex("ff0e000000000000000000000000c0de"), 240
    record = pack(">II8x", 0, members) + gid + pack(f">{members}I", *range(members))
    index = pair.b.command(Opcode.MGID_HASH, gid)
    pair.b.command(Opcode.WRITE_MCG, record.ljust(1024, b"\0"), index)
    turns = bytes_per_turn(pair)
    group = address(pair.b, 0xFFFFFF, dmac=b"\x33\x33\0\0\xc0\xde")
    group = group[:16] + gid + group[32:]
    for _ in range(12):
        pair.post_send(SendOpcode.SEND, group + inline(b"all"), ring=False)
    pair.a.doorbell(pair.qa.qpn)
    pair.run()
    assert pair.sent() == [0] * 12
    assert sum(turns) == 12
    assert max(turns) <= 5


def test_answers_that_bring_the_next_request_are_counted_too() -> None:
    """After a timeout, each answer starts a read that waited: all in one delivery."""
    pair = big_pair({"sra_max": 0, "retry_count": 7})
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    for _ in range(8):
        segments = remote(HIGH, KEY) + data((KEY, HIGH, BIG))
        pair.post_send(SendOpcode.RDMA_READ, segments)
    turns = bytes_per_turn(pair)
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.a.host.run(0.2)
    assert pair.sent() == [0] * 8
    assert sum(turns) >= 7 * BIG
    assert max(turns) <= 3 * BIG


def test_requests_are_sent_again_in_batches_and_in_order() -> None:
    pair = Pair().connect(rts={"retry_count": 7})
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    for number in range(100):
        pair.a.host.poke(source + 4 * number, pack("<I", number))
        segments = remote(target, rkey) + data((key, source + 4 * number, 4))
        pair.post_send(SendOpcode.RDMA_WRITE, segments)
    turns = bytes_per_turn(pair)
    pair.a.host.run(0.1)  # one timeout, in vain: everything goes out once, not only a batch
    assert sum(turns) == 400
    assert max(turns) <= 16 * 4
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.a.host.run(0.1)
    assert pair.sent() == [0] * 100
    assert pair.b.host.peek(target, 4) == pack("<I", 99)
    assert max(turns) <= 16 * 4


def test_idle_queue_pairs_in_error_are_looked_at_ever_more_seldom() -> None:
    pair = Pair().connect()
    inbox, key = pair.b.memory(4096)
    pair.b.command(Opcode.TOERR_QP, bytes(8), pair.qb.qpn)
    looks = 0
    later = pair.b.host.call_later

    def counted(seconds: float, action: Callable[[], None]) -> FakeTimer:
        nonlocal looks
        looks += 1
        return later(seconds, action)

    pair.b.host.call_later = counted  # type: ignore[method-assign]
    pair.b.host.run(1)
    assert looks < 50
    pair.post_recv([(key, inbox, 8)])
    pair.b.host.run(0.05)
    assert len(pair.b.statuses(pair.qb)) == 1
    pair.post_recv([(key, inbox, 8)])  # somebody posts again: looked at often again
    pair.b.host.run(0.003)
    assert len(pair.b.statuses(pair.qb)) == 1
    other = pair.b.create_qp(0x270)
    pair.b.host.run(1)
    pair.b.command(
        Opcode.TOERR_QP, bytes(8), other.qpn
    )  # one that failed just now waits for nobody
    pair.b.post_recv(other, [(key, inbox, 8)])
    pair.b.host.run(0.003)
    assert len(pair.b.statuses(other)) == 1


def test_many_queue_pairs_in_error_share_one_portion() -> None:
    pair = Pair().connect()
    pairs = [pair.b.create_qp(0x280 + number, log_cq=12) for number in range(4)]
    flushed = [0]
    later = pair.b.host.call_later

    def counted(seconds: float, action: Callable[[], None]) -> FakeTimer:
        def run() -> None:
            action()
            flushed.append(sum(len(pair.b.statuses(qp)) for qp in pairs))

        return later(seconds, run)

    pair.b.host.call_later = counted  # type: ignore[method-assign]
    for qp in pairs:
        pair.b.command(Opcode.TOERR_QP, bytes(8), qp.qpn)
        pair.b.host.poke(qp.record, (1000).to_bytes(4, "big"))  # a producer that jumped
    pair.b.host.run(0.05)
    assert sum(flushed) == 4000
    assert max(flushed) <= 256


def test_queue_pairs_are_bounded() -> None:
    """At a time: one that goes makes room."""
    pair = Pair()
    pair.b.adapter.qps.limit = len(pair.b.adapter.qps) + 1
    more = pair.b.create_qp(0x270)
    assert pair.b.try_command(Opcode.RST2INIT_QP, bytes(512), 0x271)[0] == Status.EXCEED_LIM
    pair.b.command(Opcode.TORST_QP, modifier=more.qpn)
    pair.b.create_qp(0x271)
