"""IPoIB: checksums of UD queue pairs both ways, and TCP segments cut by the adapter."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.sending import LargeSendHeaders
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP, DevFlag
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE, CompletionStatus, FrameStatus
from bluebridge.device.layout.mlx4.wqe import IP_CSUM, TCP_UDP_CSUM, SendOpcode
from bluebridge.device.layout.net.ip import IPOIB
from bluebridge.device.layout.net.roce import GRH_SIZE
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from tests.models.ethernet import ip_frame
from tests.models.ib_node import IbNode, Subnet, datagram_segment
from tests.models.rdma_node import Wc, data
from tests.unit.ethernet.test_large_sends import ipv4_headers, ipv6_headers
from tests.unit.fabric.test_ib_traffic import QKEY, ud

CHECKSUMS = IP_CSUM | TCP_UDP_CSUM
MSS = 1000
ROOM = 16
SENDS, PIECES = 3, 500
"""Large sends with one doorbell, and datagrams of each."""


class IpoibNode(IbNode):
    """A guest whose driver enabled checksums of IPoIB, as mlx4_core does where it may."""

    def init_mailbox(self) -> bytearray:
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "flags", 1 | 1 << 3)
        return mailbox


class Link:
    """A UD queue pair of each guest; the second has receives of 4 KiB."""

    def __init__(self, kind: type[IbNode] = IpoibNode, **more: int) -> None:
        self.subnet = Subnet(second=kind)
        self.a, self.b = self.subnet.a, self.subnet.b
        self.qa = ud(self.a, 0x240, **more)
        self.qb = ud(self.b, 0x250)
        self.source = self.a.memory(1 << 16)
        self.target, self.key = self.b.memory(ROOM * 4096)
        for slot in range(ROOM):
            self.b.post_recv(self.qb, [(self.key, self.target + slot * 4096, 4096)])

    def send(self, packet: bytes, *, flags: int = 0, opcode: int = SendOpcode.SEND) -> list[Wc]:
        """Send what lies in memory; the completions of the sender."""
        address, key = self.source
        self.a.host.poke(address, packet)
        segments = self.segment() + data((key, address, len(packet)))
        self.a.post_send(self.qa, opcode, segments, flags=flags)
        return self.a.completions(self.qa)

    def send_large(self, header: bytes, payload: bytes, mss: int = MSS) -> list[Wc]:
        """A large send as `build_lso_seg` writes it; the completions of the sender."""
        address, key = self.source
        self.a.host.poke(address, payload)
        large = pack(">HH", mss, len(header)) + header
        large += bytes(-len(large) % 16)
        segments = self.segment() + large + data((key, address, len(payload)))
        self.a.post_send(self.qa, SendOpcode.LSO, segments, flags=CHECKSUMS)
        return self.a.completions(self.qa)

    def segment(self) -> bytes:
        return datagram_segment(self.b.agent.lid, self.qb.qpn, QKEY)

    def received(self) -> list[tuple[bytes, Wc]]:
        """Packets that arrived, with their completions."""
        found = []
        for slot, wc in enumerate(self.b.completions(self.qb)):
            raw = self.b.host.peek(self.target + slot * 4096 + GRH_SIZE, wc.length - GRH_SIZE)
            found.append((raw, wc))
        return found


def ipoib(frame: bytes | bytearray) -> bytes:
    """A frame's packet behind the header of IPoIB."""
    return bytes(IPOIB.pack(ethertype=int.from_bytes(frame[12:14], "big")) + frame[14:])


def verdict(wc: Wc) -> tuple[int, int, int]:
    """Status bits, the byte of the L4 checksum, and the checksum of a completion."""
    get = FRAME_CQE.get
    return get(wc.raw, "status"), get(wc.raw, "bad_fcs"), get(wc.raw, "checksum")


def software_trusts(wc: Wc) -> bool:
    """Linux `ib/cq.c: mlx4_ib_ipoib_csum_ok`."""
    status, checked, checksum = verdict(wc)
    transport = status & (FrameStatus.TCP | FrameStatus.UDP)
    return bool(checked & 4 or (status & FrameStatus.IP_OK and transport and checksum == 0xFFFF))


@pytest.fixture
def link() -> Link:
    return Link(msg_max=18)


def test_capabilities_offer_checksums_and_large_sends(link: Link) -> None:
    answer = link.a.query(Opcode.QUERY_DEV_CAP)
    assert QUERY_DEV_CAP.get(answer, "flags_lo") & (DevFlag.IPOIB_CSUM | DevFlag.BLH) == (
        DevFlag.IPOIB_CSUM | DevFlag.BLH
    )
    assert QUERY_DEV_CAP.get(answer, "log_max_gso") == 18


@pytest.mark.parametrize("protocol", [6, 17])
def test_checksums_are_filled_in_and_believed(link: Link, protocol: int) -> None:
    packet = ipoib(ip_frame(b"payload", protocol))
    assert [wc.status for wc in link.send(packet, flags=CHECKSUMS)] == [0]
    ((got, wc),) = link.received()
    headers = FrameHeaders(got, IPOIB.size)
    assert headers.header_is_good(got)
    assert headers.transport_is_good(got)
    assert len(got) == len(packet)
    assert software_trusts(wc)


def test_nothing_is_filled_in_unasked(link: Link) -> None:
    packet = ipoib(ip_frame(b"payload", 6))
    link.send(packet)
    ((got, wc),) = link.received()
    assert got == packet
    assert not software_trusts(wc)


def test_right_checksums_are_recognised_and_wrong_ones(link: Link) -> None:
    """Whoever computed them."""
    link.send(ipoib(ip_frame(b"payload", 6)), flags=CHECKSUMS)
    ((good, _),) = link.received()
    link.send(good)
    link.send(good[:-1] + b"!")
    (_, right), (_, wrong) = link.received()[-2:]
    assert software_trusts(right)
    assert not software_trusts(wrong)


@pytest.mark.parametrize("packet", [b"", b"\x08\0", b"\x08\0\0\0\x45", b"\x08\x06\0\0" + bytes(56)])
def test_other_payloads_are_left_alone(link: Link, packet: bytes) -> None:
    link.send(packet, flags=CHECKSUMS)
    ((got, wc),) = link.received()
    assert got == packet
    assert verdict(wc) == (0, 0, 0)


def test_without_the_flag_completions_say_nothing() -> None:
    link = Link(IbNode)
    link.send(ipoib(ip_frame(b"payload", 6)), flags=CHECKSUMS)
    ((_, wc),) = link.received()
    assert verdict(wc) == (0, 0, 0)


def test_tcp_over_ipv6_is_cut_too() -> None:
    header = ipoib(ipv6_headers())
    packets = LargeSendHeaders(header, ipoib=True).cut(bytes(2 * MSS), MSS)
    assert [len(packet) for packet in packets] == [len(header) + MSS] * 2
    for packet in packets:
        assert FrameHeaders(packet, IPOIB.size).transport_is_good(packet)


@pytest.mark.parametrize("total", [1, MSS, 3 * MSS + 1])
def test_a_large_send_becomes_datagrams(link: Link, total: int) -> None:
    payload = bytes(range(256)) * (total // 256 + 1)
    header = ipoib(ipv4_headers())
    (done,) = link.send_large(header, payload[:total])
    assert (done.status, done.opcode) == (0, SendOpcode.LSO)
    rebuilt, arrived = b"", link.received()
    assert len(arrived) == -(-total // MSS)
    for packet, wc in arrived:
        found = FrameHeaders(packet, IPOIB.size)
        assert found.header_is_good(packet)
        assert found.transport_is_good(packet)
        assert software_trusts(wc)
        rebuilt += packet[len(header) :]
    assert rebuilt == payload[:total]


@pytest.mark.parametrize(
    ("header", "mss", "status"),
    [
        (ipoib(ipv4_headers()), 0, CompletionStatus.LOCAL_QP_OP_ERR),
        (ipoib(ipv4_headers()), 4096, CompletionStatus.LOCAL_QP_OP_ERR),
        (ipoib(ipv4_headers()), 10, CompletionStatus.LOCAL_LENGTH_ERR),
        (ipoib(ip_frame(b"")), MSS, CompletionStatus.LOCAL_QP_OP_ERR),
        (b"\x08\0", MSS, CompletionStatus.LOCAL_QP_OP_ERR),
    ],
    ids=["no bytes", "more than a datagram", "too many pieces", "UDP", "no header"],
)
def test_large_sends_that_cannot_be_cut_fail(
    link: Link, header: bytes, mss: int, status: CompletionStatus
) -> None:
    assert [wc.status for wc in link.send_large(header, bytes(6000), mss)] == [status]
    assert link.received() == []


def test_a_large_send_is_no_longer_than_the_queue_pair_may_send() -> None:
    link = Link(msg_max=12)
    (done,) = link.send_large(ipoib(ipv4_headers()), bytes(6000))
    assert done.status == CompletionStatus.LOCAL_LENGTH_ERR


def post_many_pieces(link: Link) -> QueuePair:
    """More datagrams than one turn of the loop has time for, with one doorbell."""
    address, key = link.source
    header = ipoib(ipv4_headers())
    large = pack(">HH", 100, len(header)) + header
    segments = link.segment() + large + bytes(-len(large) % 16) + data((key, address, PIECES * 100))
    for number in range(SENDS):
        ring = number == SENDS - 1
        link.a.post_send(link.qa, SendOpcode.LSO, segments, flags=CHECKSUMS, ring=ring)
    qp = link.a.adapter.qps.get(link.qa.qpn)
    assert qp is not None
    return qp


def test_others_have_their_turn_within_a_large_send(link: Link) -> None:
    """The part beyond the queue's share of time follows in the next turn of the loop."""
    qp = post_many_pieces(link)
    sent = qp.traffic.tx_packets
    assert 0 < sent < SENDS * PIECES
    assert sent % PIECES
    link.a.host.run(1)
    assert qp.traffic.tx_packets == SENDS * PIECES
    assert [wc.status for wc in link.a.completions(link.qa)] == [0] * SENDS


@pytest.mark.parametrize("opcode", [Opcode.TORST_QP, Opcode.TOERR_QP])
def test_reset_and_error_end_a_large_send(link: Link, opcode: Opcode) -> None:
    qp = post_many_pieces(link)
    sent = qp.traffic.tx_packets
    link.a.command(opcode, modifier=link.qa.qpn)
    link.a.host.run(1)
    assert qp.traffic.tx_packets == sent
