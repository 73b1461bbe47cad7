"""Large sends: what the device makes of one entry, frame by frame, and how it arrives."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest

from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.sending import LargeSendHeaders, SegmentError
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE, CompletionStatus, FrameStatus
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, IP_CSUM, TCP_UDP_CSUM, SendOpcode
from bluebridge.device.mlx4.ports.multicast_groups import SteerType
from tests.models.ethernet import ethernet_qp, steer
from tests.models.rdma_node import Node, Pair, TestQp, data
from tests.unit.ethernet.test_steering import B0Node, default
from tests.unit.rdma.test_qp_shares import bytes_per_turn

FIN_PSH_CWR_ACK = 0x99
SEQUENCE = 0xFFFFFF00
ETHERNET = bytes.fromhex("020000000a02 020000000a01")


def tcp_header(options: bytes = b"") -> bytes:
    """TCP with every flag that belongs to one frame only."""
    offset = (20 + len(options)) // 4 << 4
    return pack(">HHIIBBHHH", 1000, 80, SEQUENCE, 7, offset, FIN_PSH_CWR_ACK, 512, 0xBEEF, 0) + (
        options
    )


def ipv4_headers(options: bytes = b"", tag: bytes = b"") -> bytes:
    """Ethernet, IPv4 and TCP; lengths and checksums are what software leaves there."""
    ip = pack(
        ">BBHHHBBH4s4s", 0x45, 0, 40000, 0xFFFE, 0x4000, 64, 6, 0xDEAD, b"\x0a\0\0\1", b"\x0a\0\0\2"
    )
    return ETHERNET + tag + b"\x08\0" + ip + tcp_header(options)


def ipv6_headers() -> bytes:
    """The same over IPv6; a payload length of 0 stands for more than 64 KiB."""
    ip = pack(">IHBB", 6 << 28, 0, 6, 64) + bytes(range(32))
    return ETHERNET + b"\x86\xdd" + ip + tcp_header()


@pytest.mark.parametrize(
    "headers",
    [ipv4_headers(), ipv4_headers(b"\1\1\x08\x0a" + bytes(8)), ipv6_headers(),
     ipv4_headers(tag=b"\x81\0\0\5")],
    ids=["ipv4", "options", "ipv6", "vlan"],
)  # fmt: skip
@pytest.mark.parametrize(("total", "mss"), [(0, 1448), (1, 1448), (4343, 1448), (4344, 1448)])
def test_segments(headers: bytes, total: int, mss: int) -> None:
    payload = bytes(range(256)) * (total // 256 + 1)
    frames = LargeSendHeaders(headers).cut(payload[:total], mss)
    assert len(frames) == max(1, -(-total // mss))
    rebuilt = b""
    for number, frame in enumerate(frames):
        packet = FrameHeaders(frame)
        assert packet.whole
        assert packet.header_is_good(frame)
        assert packet.transport_is_good(frame)
        assert packet.end == len(frame)
        tcp = packet.transport
        assert unpack_from(">I", frame, tcp + 4)[0] == (SEQUENCE + number * mss) & 0xFFFFFFFF
        expected = 0x10 | 0x80 * (number == 0) | 0x09 * (number == len(frames) - 1)
        assert frame[tcp + 13] == expected
        if packet.version == 4:
            identification = unpack_from(">H", frame, packet.network + 4)[0]
            assert identification == (0xFFFE + number) & 0xFFFF
        rebuilt += frame[len(headers) :]
    assert rebuilt == payload[:total]


@pytest.mark.parametrize(
    "headers",
    [
        b"", ipv4_headers()[:-1], ipv4_headers() + b"x", ETHERNET + b"\x08\6" + bytes(60),
        ETHERNET + b"\x86\xdd" + bytes(60), ETHERNET + b"\x08\0" + bytes(60),
        ipv4_headers()[:23] + b"\x11" + ipv4_headers()[24:],
    ],
)  # fmt: skip
def test_headers_that_are_none_are_refused(headers: bytes) -> None:
    with pytest.raises(SegmentError):
        LargeSendHeaders(headers)


@pytest.mark.parametrize("headers", [ipv4_headers(), ipv6_headers()], ids=["ipv4", "ipv6"])
def test_frames_longer_than_their_header_can_say_are_refused(headers: bytes) -> None:
    with pytest.raises(SegmentError):
        LargeSendHeaders(headers).cut(bytes(70_000), 0xFFFF)


@pytest.fixture
def pair() -> Pair:
    """Two guests with an Ethernet queue pair each, of 64-byte slots as mlx4_en has them."""
    pair = Pair()
    pair.qa = ethernet_qp(pair.a, 0x48, log_sq_stride=3)
    pair.qb = ethernet_qp(pair.b, 0x49)
    for node, qp in ((pair.a, pair.qa), (pair.b, pair.qb)):
        steer(node, qp.qpn)
    return pair


def send_large(node: Node, qp: TestQp, headers: bytes, mss: int, segments: bytes) -> None:
    """Post a large send as `mlx4_en_xmit` does; it may take several slots of 128 bytes."""
    raw = (pack(">HH", mss, len(headers)) + headers).ljust(-(-(4 + len(headers)) // 16) * 16, b"\0")
    raw += segments
    flags = CQE_REQUEST | IP_CSUM | TCP_UDP_CSUM
    opcode = SendOpcode.LSO | 1 << 6 | (qp.sent >> 4 & 1) << 31
    entry = pack(">IIII", opcode, (16 + len(raw)) // 16, flags, 0) + raw
    node.host.poke(qp.address + (qp.sent & 15) * 128, entry)
    qp.sent += -(-len(entry) // 128)
    node.doorbell(qp.qpn)


def test_a_large_send_arrives_as_frames_with_one_event(pair: Pair) -> None:
    source, lkey = pair.a.memory(8192)
    target, key = pair.b.memory(8 * 2048)
    payload = bytes(range(250)) * 20
    pair.a.host.poke(source, payload)
    for slot in range(5):
        pair.post_recv([(key, target + 2048 * slot, 2048)])
    pair.b.arm_cq(pair.qb.cq, 1)
    pair.b.host.take_interrupts()
    headers = ipv4_headers()
    gather = data((lkey, source, 1000), (lkey, source + 1000, 4000))
    send_large(pair.a, pair.qa, headers, 1400, gather)
    assert pair.sent() == [0]
    assert len(pair.b.host.take_interrupts()) == 1
    got = pair.b.completions(pair.qb)
    assert [wc.length - len(headers) for wc in got] == [1400, 1400, 1400, 800]
    assert [wc.index for wc in got] == [0, 1, 2, 3]
    status = FrameStatus.IPV4 | FrameStatus.TCP | FrameStatus.IP_OK
    for wc in got:
        assert FRAME_CQE.get(wc.raw, "status") == status
        assert FRAME_CQE.get(wc.raw, "checksum") == 0xFFFF
    parts = [
        pair.b.host.peek(target + 2048 * slot + len(headers), wc.length - len(headers))
        for slot, wc in enumerate(got)
    ]
    assert b"".join(parts) == payload
    counters = pair.a.port.counters.tx
    assert (sum(counters.frames), sum(counters.octets)) == (4, 5000 + 4 * len(headers))


def test_frames_that_come_together_wrap_around_the_ring(pair: Pair) -> None:
    """Five frames at a time into a ring of 16 receives."""
    source, lkey = pair.a.memory(8192)
    target, key = pair.b.memory(20 * 2048)
    payload = bytes(range(250)) * 20
    pair.a.host.poke(source, payload)
    headers = ipv4_headers()
    arrived = b""
    for first in range(0, 20, 5):
        places = [target + 2048 * slot for slot in range(first, first + 5)]
        for place in places:
            pair.post_recv([(key, place, 2048)])
        send_large(pair.a, pair.qa, headers, 1000, data((lkey, source, 5000)))
        assert [wc.index for wc in pair.b.completions(pair.qb)] == list(range(first, first + 5))
        arrived += b"".join(pair.b.host.peek(place + len(headers), 1000) for place in places)
    assert arrived == payload * 4


def test_very_many_frames_leave_in_portions(pair: Pair) -> None:
    """The entry is complete when all have left, and the next one comes after them."""
    source, lkey = pair.a.memory(64 << 10)
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 2048)])
    turns = bytes_per_turn(pair)
    for length in (64 << 10, 50):
        send_large(pair.a, pair.qa, ipv4_headers(), 50, data((lkey, source, length)))
    assert pair.sent() == []
    pair.run()
    assert pair.sent() == [0, 0]
    assert max(turns) <= 256
    assert sum(turns) == sum(pair.a.port.counters.tx.frames) == 1311 + 1
    assert pair.b.port.counters.rx.dropped == 1311


def test_copies_for_many_rings_are_part_of_the_share(pair: Pair) -> None:
    """240 of them, as many as a record has places for: one burst is a turn's work."""
    pair.b = B0Node("c", 3, pair.fabric)
    default(pair.b, SteerType.UNICAST, *range(0x300, 0x300 + 240))
    source, lkey = pair.a.memory(64 << 10)
    turns = bytes_per_turn(pair)
    headers = pair.b.mac + ipv4_headers()[6:]
    send_large(pair.a, pair.qa, headers, 100, data((lkey, source, 64 << 10)))
    pair.run()
    assert pair.sent() == [0]
    assert sum(turns) == 656
    assert max(turns) == 128


def test_an_error_ends_a_large_send(pair: Pair) -> None:
    source, lkey = pair.a.memory(64 << 10)
    send_large(pair.a, pair.qa, ipv4_headers(), 50, data((lkey, source, 64 << 10)))
    pair.a.command(Opcode.TOERR_QP, bytes(8), pair.qa.qpn)
    assert pair.sent() == [0]
    pair.run()
    assert sum(pair.a.port.counters.tx.frames) == 256


def test_frames_without_a_receive_are_counted(pair: Pair) -> None:
    source, lkey = pair.a.memory(8192)
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 2048)])
    send_large(pair.a, pair.qa, ipv4_headers(), 1000, data((lkey, source, 5000)))
    assert pair.sent() == [0]
    assert len(pair.b.completions(pair.qb)) == 1
    assert pair.b.port.counters.rx.dropped == 4


@pytest.mark.parametrize(
    ("headers", "mss", "length"),
    [(ipv4_headers(), 0, 100), (ipv4_headers(), 9728, 100), (b"short", 1000, 100),
     (ipv4_headers(), 1, 8193), (bytes(54), 1000, 1 << 19 | 1)],
)  # fmt: skip
def test_nonsense_fails_the_entry(pair: Pair, headers: bytes, mss: int, length: int) -> None:
    source, lkey = pair.a.memory(4096)
    send_large(pair.a, pair.qa, headers, mss, data((lkey, source, length)))
    assert pair.sent()[0] in (CompletionStatus.LOCAL_QP_OP_ERR, CompletionStatus.LOCAL_PROT_ERR)
    assert not pair.b.completions(pair.qb)
