"""B0 steering as mlx4_core programs it, and receive side scaling: which ring a frame goes to."""

from __future__ import annotations

from ipaddress import ip_address
from struct import pack

import pytest

from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.receiving import MAX_FLOWS, toeplitz, xor_hash
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, RSS, RSS_OFFSET, RssFlag, ServiceType
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE
from bluebridge.device.layout.mlx4.ports import MCG
from bluebridge.device.mlx4.pairs import spreader_of
from bluebridge.device.mlx4.ports.multicast_groups import SteerType, group_of
from tests.models.ethernet import BROADCAST, ethernet_qp, ip_frame, steer
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, inline

ETHERNET = 1
OTHER = b"\x02\x77\0\0\0\1"
GROUP = b"\x01\0\x5e\0\0\1"


class B0Node(Node):
    """A guest whose driver chose B0 steering."""

    def init_mailbox(self) -> bytearray:
        """INIT_HCA with the bit for unicast steering."""
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "uc_steering", 1 << 3)
        return mailbox


def attach(node: Node, mac: bytes, steer: SteerType, *qpns: int) -> None:
    """`mlx4_qp_attach_common`: the record of an address in its bucket."""
    gid = group_of(mac, 1, steer)
    bucket = node.command(Opcode.MGID_HASH, gid, op_modifier=1)
    record = MCG.pack(protocol=ETHERNET, members=len(qpns), gid=gid)
    node.command(Opcode.WRITE_MCG, bytes(record) + pack(f">{len(qpns)}I", *qpns), bucket)


def default(node: Node, steer: SteerType, *qpns: int) -> None:
    """`mlx4_WRITE_PROMISC`."""
    record = MCG.pack(protocol=ETHERNET, members=len(qpns))
    raw = bytes(record) + pack(f">{len(qpns)}I", *qpns)
    node.command(Opcode.WRITE_MCG, raw, 1 << 16 | steer << 1, 1)


@pytest.fixture
def nodes() -> tuple[Pair, TestQp, TestQp]:
    """A sender, and a receiver with two rings."""
    pair = Pair()
    receiver = B0Node("c", 3, pair.fabric)
    pair.b = receiver
    pair.qa = ethernet_qp(pair.a, 0x48)
    return pair, ethernet_qp(receiver, 0x49), ethernet_qp(receiver, 0x4A)


def arrivals(pair: Pair, rings: tuple[TestQp, TestQp], mac: bytes) -> list[int]:
    """How many copies of a frame each ring gets."""
    for ring in rings:
        target, key = pair.b.memory(4096)
        pair.b.post_recv(ring, [(key, target, 2048)])
    pair.post_send(SendOpcode.SEND, inline(mac + pair.a.mac + b"\x08\0"))
    return [len(pair.b.completions(ring)) for ring in rings]


def test_addresses_name_their_rings(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    assert arrivals(pair, rings, pair.b.mac) == [0, 0]
    attach(pair.b, pair.b.mac, SteerType.UNICAST, 0x49)
    attach(pair.b, OTHER, SteerType.UNICAST, 0x4A)
    attach(pair.b, BROADCAST, SteerType.MULTICAST, 0x49)
    attach(pair.b, GROUP, SteerType.MULTICAST, 0x49, 0x4A)
    wanted = {pair.b.mac: [1, 0], OTHER: [0, 1], BROADCAST: [1, 0], GROUP: [1, 1]}
    assert {mac: arrivals(pair, rings, mac) for mac in wanted} == wanted
    attach(pair.b, OTHER, SteerType.UNICAST)
    assert arrivals(pair, rings, OTHER) == [0, 0]


def test_promiscuous_rings_get_the_rest(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    attach(pair.b, pair.b.mac, SteerType.UNICAST, 0x49)
    default(pair.b, SteerType.UNICAST, 0x4A)
    assert arrivals(pair, rings, OTHER) == [0, 1]
    assert arrivals(pair, rings, pair.b.mac) == [1, 0]
    assert arrivals(pair, rings, GROUP) == [0, 0]
    default(pair.b, SteerType.MULTICAST, 0x49)
    assert arrivals(pair, rings, GROUP) == [1, 0]
    default(pair.b, SteerType.UNICAST)
    assert arrivals(pair, rings, OTHER) == [0, 0]


def test_a_ring_that_is_named_often_gets_one_copy(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    attach(pair.b, GROUP, SteerType.MULTICAST, *[0x49] * 100, 0x4A)
    default(pair.b, SteerType.UNICAST, *[0x4A] * 100)
    for _ in range(3):  # receives that a second copy would find
        target, key = pair.b.memory(4096)
        pair.b.post_recv(rings[0], [(key, target, 2048)])
    assert arrivals(pair, rings, GROUP) == [1, 1]
    assert arrivals(pair, rings, OTHER) == [0, 1]


def test_rings_of_a_group_strip_or_keep_the_tag(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    """The frame without its tag is made once, whoever wants it."""
    pair, first, second = nodes
    keeps = ethernet_qp(pair.b, 0x4B, no_vlan_strip=1)
    attach(pair.b, GROUP, SteerType.MULTICAST, 0x49, 0x4B, 0x4A)
    places = {}
    for ring in (first, keeps, second):
        places[ring.qpn], key = pair.b.memory(4096)
        pair.b.post_recv(ring, [(key, places[ring.qpn], 2048)])
    head, tag, rest = GROUP + pair.a.mac, b"\x81\0\0\5", b"\x08\0" + bytes(range(80))
    pair.post_send(SendOpcode.SEND, inline(head + tag + rest))
    wanted = {0x49: head + rest, 0x4A: head + rest, 0x4B: head + tag + rest}
    for ring in (first, keeps, second):
        (got,) = pair.b.completions(ring)
        assert FRAME_CQE.get(got.raw, "vlan_tag") == 5
        assert pair.b.host.peek(places[ring.qpn], got.length) == wanted[ring.qpn]


# the key and the vectors of Microsoft's "Verifying the RSS Hash Calculation"
KEY = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
SOURCE, TARGET = bytes((66, 9, 149, 187)), bytes((161, 142, 100, 80))
PORTS = pack(">HH", 2794, 1766)
ALL = RssFlag.IPV4 | RssFlag.TCP_IPV4 | RssFlag.IPV6 | RssFlag.TCP_IPV6
RSS_QPN = 0x2C000


@pytest.mark.parametrize(
    ("source", "source_port", "target", "target_port", "addresses", "with_ports"),
    [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323E8FC2, 0x51CCC178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xD718262A, 0xC626B0EA),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xD2D0A5DE, 0x5C2B394A),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xAFC7327F),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5D1809C5, 0x10E828A2),
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2CC18CD5, 0x40207D3D),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0F0C461C, 0xDDE51BBF),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024,
            0x4B61E985, 0x02D1FEEF,
        ),
    ],
)  # fmt: skip
def test_toeplitz_vectors(
    source: str, source_port: int, target: str, target_port: int, addresses: int, with_ports: int
) -> None:
    flow = ip_address(source).packed + ip_address(target).packed
    assert toeplitz(flow, KEY) == addresses
    assert toeplitz(flow + pack(">HH", source_port, target_port), KEY) == with_ports


def test_xor() -> None:
    assert xor_hash(pack(">III", 1, 2, 4)) == 7


def context(base: int, log_size: int, flags: int = ALL, hash_fn: int = 1) -> bytearray:
    """An indirection context as mlx4_en makes it."""
    raw = QPC.pack(service=ServiceType.MLX, rss=1, mtu_msgmax=0xFF)
    values: dict[str, int | bytes] = {
        "log_table_size": log_size, "base_qpn": base, "default_qpn": base, "flags": flags,
        "hash_fn": hash_fn, "key": KEY,
    }  # fmt: skip
    for name, value in values.items():
        RSS.set(raw, name, value, RSS_OFFSET)
    return raw


def tcp(protocol: int = 6) -> bytearray:
    """A frame of the flow of the vectors."""
    frame = ip_frame(b"", protocol)
    frame[26:34] = SOURCE + TARGET
    frame[34:38] = PORTS
    return frame


@pytest.mark.parametrize(
    ("flags", "protocol", "expected"),
    [
        (ALL, 6, 0x51CCC178), (ALL, 17, 0x323E8FC2), (ALL | RssFlag.UDP_IPV4, 17, 0x51CCC178),
        (RssFlag.IPV4, 6, 0x323E8FC2), (RssFlag.IPV6, 6, 0), (RssFlag.TCP_IPV4, 6, 0x51CCC178),
        (RssFlag.TCP_IPV4, 17, 0),
    ],
)  # fmt: skip
def test_fields_follow_the_context(flags: int, protocol: int, expected: int) -> None:
    frame = tcp(protocol)
    value, qpn = spreader_of(context(0x100, 3, flags)).choose(frame, FrameHeaders(frame))
    assert (value, qpn) == (expected, 0x100 + (expected & 7))


def test_fragments_go_where_their_addresses_say() -> None:
    frame = tcp()
    frame[20:22] = b"\x20\0"
    assert spreader_of(context(0x100, 3)).choose(frame, FrameHeaders(frame))[0] == 0x323E8FC2


def test_flows_are_not_remembered_without_end() -> None:
    spreader = spreader_of(context(0x100, 3, hash_fn=0))
    for number in range(MAX_FLOWS + 2):
        frame = tcp()
        frame[26:30] = pack(">I", number)
        spreader.choose(frame, FrameHeaders(frame))
    assert len(spreader.flows) == 2


def test_an_indirection_queue_pair_spreads_over_its_rings() -> None:
    pair = Pair()
    sender = ethernet_qp(pair.a, 0x48)
    rings = [ethernet_qp(pair.b, 0x400 + number) for number in range(4)]
    _indirection(pair.b, context(0x400, 2))
    steer(pair.b, RSS_QPN)
    for ring in rings:
        target, key = pair.b.memory(4096)
        for _ in range(8):
            pair.b.post_recv(ring, [(key, target, 2048)])
    frame = tcp()
    frame[:12] = pair.b.mac + pair.a.mac
    pair.a.post_send(sender, SendOpcode.SEND, inline(bytes(frame)))
    pair.a.post_send(sender, SendOpcode.SEND, inline(BROADCAST + pair.a.mac + b"\x08\6"))
    first, *others = (pair.b.completions(ring) for ring in rings)
    assert [len(got) for got in others] == [0, 0, 0]  # 0x51CCC178 & 3 is 0, ARP has no hash
    assert [FRAME_CQE.get(wc.raw, "rss_hash") for wc in first] == [0x51CCC178, 0]
    assert {wc.qpn for wc in first} == {0x400}
    _spread(pair, sender, rings)
    pair.b.doorbell(RSS_QPN)


def _spread(pair: Pair, sender: TestQp, rings: list[TestQp]) -> None:
    """Many flows reach more than one ring, each always the same."""
    seen: dict[int, set[int]] = {}
    for port in range(8):
        frame = tcp()
        frame[:12] = pair.b.mac + pair.a.mac
        frame[34:36] = pack(">H", port)
        pair.a.post_send(sender, SendOpcode.SEND, inline(bytes(frame)))
        for ring in rings:
            for wc in pair.b.completions(ring):
                seen.setdefault(port, set()).add(wc.qpn)
    assert all(len(qpns) == 1 for qpns in seen.values())
    assert len(set.union(*seen.values())) > 1


def _indirection(node: Node, raw: bytearray) -> None:
    node.command(Opcode.RST2INIT_QP, bytes(8) + bytes(raw), RSS_QPN)
    for opcode in (Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
        node.command(opcode, bytes(8) + bytes(raw), RSS_QPN)
