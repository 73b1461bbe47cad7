"""Receive work queues: rings without sends, behind an RSS queue pair, as user programs have them.

Contexts are those of Linux `ib/qp.c: create_rq, _mlx4_ib_modify_wq, fill_qp_rss_context`.
"""

from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, DevFlag
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import (
    QPC,
    QPC_MAILBOX_OFFSET,
    RSS,
    RSS_OFFSET,
    QpState,
    RssFlag,
    ServiceType,
)
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE, CompletionStatus
from tests.models.ethernet import ethernet_qp, ip_frame, steer
from tests.models.hca_driver import UAR_PAGE
from tests.models.rdma_node import PD, Node, Pair, SendOpcode, TestQp, data, inline
from tests.unit.ethernet.test_steering import KEY, PORTS, SOURCE, TARGET

WQN, RSS_QPN = 0x400, 0x500
DUMMY_SQ_SHIFT = 6
RESIDUE = 0x2144DF1C
"""CRC-32 of any frame with its frame check sequence."""
FIELDS = RssFlag.IPV4 | RssFlag.TCP_IPV4 | RssFlag.UDP_IPV4
TAGGED_TYPE = b"\x81\0\0\5"


def work_queue(node: Node, wqn: int, *, log_size: int = 4, shift: int = 4, **more: int) -> TestQp:
    """A WQ in the state RDY: its send queue is one entry of 64 bytes, nothing is ever sent."""
    cq = node.cq()
    sends, receives = 1 << DUMMY_SQ_SHIFT, 1 << (log_size + shift)
    first = shift > DUMMY_SQ_SHIFT
    address, mtt = node.buffer(sends + receives)
    record = node.host.allocate(64, 64)
    values = {
        "service": ServiceType.MLX, "mtu_msgmax": 0xFF, "pd": PD, "uar": UAR_PAGE,
        "log_sq_stride": DUMMY_SQ_SHIFT - 4, "sq_no_prefetch": 1, "log_rq_size": log_size,
        "log_rq_stride": shift - 4, "cqn_send": cq.number, "cqn_recv": cq.number,
        "doorbell_record": record, "mtt_addr": mtt, "page_offset": node.page_offset // 64,
        "no_vlan_strip": 1, **more,
    }  # fmt: skip
    node.command(Opcode.RST2INIT_QP, bytes(8) + bytes(QPC.pack(values)), wqn)
    wq = TestQp(wqn, address, record, cq, 0 if first else sends, shift, log_size)
    node.modify(wq, Opcode.INIT2RTR_QP)
    return wq


def rss_context(log_size: int, **more: int | bytes) -> bytes:
    """The mailbox that makes an RSS queue pair over `1 << log_size` WQs from `WQN` on."""
    raw = QPC.pack(service=ServiceType.MLX, rss=1, mtu_msgmax=0xFF, pri_sched_queue=0x83)
    values: dict[str, int | bytes] = {
        "log_table_size": log_size, "base_qpn": WQN, "default_qpn": WQN, "base_qpn_udp": WQN,
        "flags": FIELDS, "hash_fn": 1, "key": KEY, **more,
    }  # fmt: skip
    for name, value in values.items():
        RSS.set(raw, name, value, RSS_OFFSET)
    return bytes(8) + bytes(raw)


def indirection(node: Node, log_size: int, **more: int | bytes) -> None:
    """An RSS queue pair in RTR."""
    node.command(Opcode.RST2INIT_QP, rss_context(log_size, **more), RSS_QPN)
    ready = QPC.pack(service=ServiceType.MLX, pri_counter_index=3, pri_sched_queue=0x83)
    node.command(Opcode.INIT2RTR_QP, bytes(8) + bytes(ready), RSS_QPN)


def post(node: Node, wq: TestQp, count: int = 1, length: int = 2048) -> int:
    """Receives with a buffer of their own each; returns the first address."""
    address, key = node.memory(count * length)
    for number in range(count):
        node.post_recv(wq, [(key, address + number * length, length)])
    return address


def send(pair: Pair, frame: bytes | bytearray) -> bytes:
    """Send a frame from the first guest to the second; returns it as it is on the wire."""
    wire = pair.b.mac + pair.a.mac + bytes(frame[12:])
    pair.post_send(SendOpcode.SEND, inline(wire))
    return wire.ljust(60, b"\0")


@pytest.fixture
def pair() -> Pair:
    """Two guests; the first has an Ethernet queue pair to send with, in `qa`."""
    pair = Pair()
    pair.qa = ethernet_qp(pair.a, 0x48)
    return pair


def test_capabilities_announce_that_the_fcs_can_be_kept() -> None:
    node = Pair().a
    answer = node.query(Opcode.QUERY_DEV_CAP)
    assert QUERY_DEV_CAP.get(answer, "flags_hi") << 32 & DevFlag.FCS_KEEP


@pytest.mark.parametrize("log_size", [0, 1, 4])
@pytest.mark.parametrize("shift", [4, 6, 8])
def test_a_work_queue_receives(pair: Pair, log_size: int, shift: int) -> None:
    wq = work_queue(pair.b, WQN, log_size=log_size, shift=shift)
    steer(pair.b, WQN)
    for count in range(3):
        target = post(pair.b, wq)
        wire = send(pair, ip_frame(bytes((count,)) * 30))
        (got,) = pair.b.completions(wq)
        assert (got.status, got.length, got.qpn) == (0, len(wire), WQN)
        assert pair.b.host.peek(target, len(wire) + 4) == wire + bytes(4)


@pytest.mark.parametrize("size", [0, 30, 200])
def test_the_fcs_is_kept_behind_the_frame(pair: Pair, size: int) -> None:
    wq = work_queue(pair.b, WQN, keep_fcs=1)
    steer(pair.b, WQN)
    target = post(pair.b, wq)
    frame = ip_frame(bytes(range(size)))
    address, key = pair.a.memory(4096)
    frame[:12] = pair.b.mac + pair.a.mac
    pair.a.host.poke(address, bytes(frame))
    pair.post_send(SendOpcode.SEND, data((key, address, len(frame))))
    (got,) = pair.b.completions(wq)
    wire = bytes(frame).ljust(60, b"\0")
    received = pair.b.host.peek(target, got.length)
    assert got.length == len(wire) + 4
    assert received[:-4] == wire
    assert crc32(received) == RESIDUE


def test_the_fcs_that_is_kept_covers_the_tag_that_is_stripped(pair: Pair) -> None:
    keeping = work_queue(pair.b, WQN, keep_fcs=1)
    stripping = work_queue(pair.b, WQN + 1, keep_fcs=1, no_vlan_strip=0)
    tagged = bytes(12) + TAGGED_TYPE + b"\x08\0" + bytes(range(60))
    steer(pair.b, keeping.qpn)
    whole = post(pair.b, keeping)
    wire = send(pair, tagged)
    (got,) = pair.b.completions(keeping)
    assert got.length == len(wire) + 4
    assert crc32(pair.b.host.peek(whole, got.length)) == RESIDUE
    assert FRAME_CQE.get(got.raw, "vlan_tag") == 5
    steer(pair.b, stripping.qpn)
    bare = post(pair.b, stripping)
    send(pair, tagged)
    (short,) = pair.b.completions(stripping)
    assert short.length == len(wire)
    assert FRAME_CQE.get(short.raw, "cvlan_present") == 1
    received = pair.b.host.peek(bare, short.length)
    assert received == wire[:12] + wire[16:] + crc32(wire).to_bytes(4, "little")


def test_the_fcs_needs_room_and_may_be_cut_by_a_border(pair: Pair) -> None:
    wq = work_queue(pair.b, WQN, shift=5, keep_fcs=1)
    steer(pair.b, WQN)
    address, key = pair.b.memory(4096)
    pair.b.post_recv(wq, [(key, address, 62), (key, address + 100, 2)])
    pair.b.post_recv(wq, [(key, address, 63)])
    wire = send(pair, ip_frame(b""))
    send(pair, ip_frame(b""))
    done, short = pair.b.completions(wq)
    assert (done.status, done.length) == (0, 64)
    received = pair.b.host.peek(address, 62) + pair.b.host.peek(address + 100, 2)
    assert received == wire + crc32(wire).to_bytes(4, "little")
    assert short.status == CompletionStatus.LOCAL_LENGTH_ERR


def test_frames_for_rings_that_want_them_differently(pair: Pair) -> None:
    """One RSS queue pair over a WQ with FCS and one without."""
    rings = [work_queue(pair.b, WQN + number, keep_fcs=number) for number in range(2)]
    indirection(pair.b, 1)
    steer(pair.b, RSS_QPN)
    for ring in rings:
        post(pair.b, ring, 8)
    for port in range(8):
        frame = ip_frame(b"", 17)
        frame[34:36] = pack(">H", port)
        send(pair, frame)
    plain, kept = (pair.b.completions(ring) for ring in rings)
    assert {wc.length for wc in plain} == {60}
    assert {wc.length for wc in kept} == {64}
    assert len(plain) + len(kept) == 8


def test_an_rss_queue_pair_spreads_over_work_queues(pair: Pair) -> None:
    rings = [work_queue(pair.b, WQN + number) for number in range(4)]
    indirection(pair.b, 2)
    steer(pair.b, RSS_QPN)
    for ring in rings:
        post(pair.b, ring, 4)
    frame = ip_frame(b"", 6)
    frame[26:38] = SOURCE + TARGET + PORTS
    send(pair, frame)
    arp = bytes(12) + b"\x08\6" + bytes(46)
    send(pair, arp)
    got = [pair.b.completions(ring) for ring in rings]
    hashes = [[FRAME_CQE.get(wc.raw, "rss_hash") for wc in found] for found in got]
    assert hashes == [[0x51CCC178, 0], [], [], []]  # the table's first for what has no hash


@pytest.mark.parametrize("opcode", [Opcode.TOERR_QP, Opcode.TORST_QP])
def test_a_work_queue_that_is_not_ready_drops_its_flows(pair: Pair, opcode: int) -> None:
    rings = [work_queue(pair.b, WQN + number) for number in range(2)]
    indirection(pair.b, 1)
    steer(pair.b, RSS_QPN)
    for ring in rings:
        post(pair.b, ring, 8)
    pair.b.command(opcode, modifier=WQN)
    flushed = pair.b.completions(rings[0])
    expected = [CompletionStatus.WR_FLUSH_ERR] * (8 if opcode == Opcode.TOERR_QP else 0)
    assert [wc.status for wc in flushed] == expected
    for port in range(8):
        frame = ip_frame(b"", 17)
        frame[34:36] = pack(">H", port)
        send(pair, frame)
    assert pair.b.completions(rings[0]) == []
    there = len(pair.b.completions(rings[1]))
    assert there and pair.b.port.counters.rx.dropped == 8 - there


def test_an_rss_queue_pair_takes_nothing_before_rtr(pair: Pair) -> None:
    wq = work_queue(pair.b, WQN)
    post(pair.b, wq, 2)
    indirection(pair.b, 0)
    steer(pair.b, RSS_QPN)
    pair.b.command(Opcode.TOERR_QP, modifier=RSS_QPN)
    send(pair, ip_frame(b""))
    assert pair.b.completions(wq) == []
    assert pair.b.port.counters.rx.dropped == 1


@pytest.mark.parametrize("base", [0x7FF000, RSS_QPN])
def test_a_table_of_foreign_queues_drops(pair: Pair, base: int) -> None:
    """Numbers of queues that do not exist, and the RSS queue pair itself."""
    indirection(pair.b, 0, base_qpn=base, default_qpn=base, base_qpn_udp=base)
    steer(pair.b, RSS_QPN)
    send(pair, ip_frame(b""))
    assert pair.b.port.counters.rx.dropped == 1


@pytest.mark.parametrize(
    "wrong", [{"log_table_size": 8}, {"hash_fn": 2}, {"flags": FIELDS | 0xC0}], ids=str
)
def test_an_rss_context_beyond_the_capabilities_is_refused(
    pair: Pair, wrong: dict[str, int]
) -> None:
    mailbox = rss_context(1, **wrong)
    status, _ = pair.b.try_command(Opcode.RST2INIT_QP, mailbox, RSS_QPN)
    assert status == Status.BAD_PARAM
    indirection(pair.b, 1)  # nothing of the refused one is left


def test_the_rss_context_is_what_query_qp_shows_in_rtr(pair: Pair) -> None:
    indirection(pair.b, 2)
    context = pair.b.query(Opcode.QUERY_QP, RSS_QPN)[QPC_MAILBOX_OFFSET:]
    assert QPC.get(context, "state") == QpState.RTR
    assert QPC.get(context, "pri_counter_index") == 3
    assert RSS.get(context, "base_qpn", RSS_OFFSET) == WQN
    assert RSS.get(context, "log_table_size", RSS_OFFSET) == 2
    assert RSS.get_raw(context, "key", RSS_OFFSET) == KEY
