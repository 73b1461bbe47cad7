"""UD, QP1 with headers made by software, UC: what arrives and what the completion says of it.

A ConnectX-3 Pro speaks RoCE v2: GIDs have versions, headers are IP, QP1 has a helper.
"""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Message, Request, Route
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, BmmeFlag
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import QPC, ROCE_MODE_V2, QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CQE, CompletionStatus, RecvOpcode
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT
from bluebridge.device.layout.mlx4.wqe import DATAGRAM
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.ip import (
    IPV4,
    IPV6,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import BTH, DETH, GRH, GSI_QKEY, BthOpcode, ipv4_gid
from bluebridge.device.mlx4.settings.config import Features
from tests.models.hca_commands import CommandDriver
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, data, gid_table, inline, remote
from tests.models.watched_fabric import WatchedFabric

GSI = 514
QKEY = 0x1111


def ready(node: Node, qp: TestQp, qkey: int = QKEY) -> None:
    """An unconnected queue pair to RTS."""
    node.modify(qp, Opcode.INIT2INIT_QP, 1 << 5, qkey=qkey)
    node.modify(qp, Opcode.INIT2RTR_QP, mtu_msgmax=0xAB)
    node.modify(qp, Opcode.RTR2RTS_QP)


@pytest.fixture
def pair() -> Pair:
    """Two UD queue pairs."""
    pair = Pair(ServiceType.UD, rq_shift=6)
    ready(pair.a, pair.qa)
    ready(pair.b, pair.qb)
    return pair


def address(peer: Node, qpn: int, qkey: int = QKEY, **more: int | bytes) -> bytes:
    """A datagram segment towards a peer."""
    av = pack(">IBBHBBBBI", 1 << 24 | 1, 0, 0x80, 0, 0, 0, 0, 7, 3 << 20 | 0x12345) + peer.gid
    values = {"av": av, "dqpn": qpn, "qkey": qkey, "vlan": 0xFFFF, "dmac": peer.mac, **more}
    return bytes(DATAGRAM.pack(values))


def test_datagram_with_its_route_header(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    source, lkey = pair.a.memory(4096)
    pair.a.host.poke(source, b"hello")
    pair.post_recv([(key, target, 60), (key, target + 100, 100)])
    segments = address(pair.b, pair.qb.qpn) + data((lkey, source, 5))
    pair.post_send(SendOpcode.SEND, segments)
    assert pair.sent() == [0]
    (got,) = pair.b.completions(pair.qb)
    assert (got.opcode, got.length, got.remote_qpn) == (RecvOpcode.SEND, 45, pair.qa.qpn)
    assert CQE.get(got.raw, "grh") == 1
    assert CQE.get_raw(got.raw, "smac") == pair.a.mac
    grh = GRH.unpack(pair.b.host.peek(target, 40))
    assert (grh["version"], grh["next_header"], grh["hop_limit"]) == (6, 0x1B, 7)
    assert (grh["sgid"], grh["dgid"], grh["flow_label"]) == (pair.a.gid, pair.b.gid, 0x12345)
    assert pair.b.host.peek(target + 40, 5) == b"hello"


def sent_routes(pair: Pair) -> list[Route]:
    """The ways of what goes from now on, but for the answers of a connection."""
    routes: list[Route] = []

    def see(source: FabricPort, message: Message) -> bool:
        if isinstance(message, Datagram | Request):
            routes.append(message.route)
        return True

    pair.watched.watch = see
    return routes


def _told(pair: Pair, segment: bytes) -> tuple[int, int, int]:
    """Return what a completion tells of a datagram: whether it came with a tag, PCP, VLAN."""
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 200)])
    pair.post_send(SendOpcode.SEND, segment + inline(b"tagged?"))
    (got,) = pair.b.completions(pair.qb)
    tag = CQE.get(got.raw, "sl_vid")
    return CQE.get(got.raw, "cvlan_present"), tag >> 13, tag & 0xFFF


FROM_LIBMLX4, FROM_KERNEL = 0x80, 0  # the byte with the GRH flag of an address vector on Ethernet
PCP5_VID100 = 5 << 13 | 100


@pytest.mark.parametrize(
    ("grh", "bit", "vlan", "told"),
    [
        (FROM_LIBMLX4, 1, PCP5_VID100, (1, 5, 100)),
        (FROM_LIBMLX4, 0, 0x0BAB, (0, 0, 0)),
        (FROM_LIBMLX4, 0, 0, (0, 0, 0)),
        (FROM_LIBMLX4, 0, 0xFFFF, (0, 0, 0)),  # guest/drivers/hca/posting/wqe.py
        (FROM_KERNEL, 0, PCP5_VID100, (1, 5, 100)),
        (FROM_KERNEL, 0, 0xFFFF, (0, 0, 0)),
    ],
)
def test_only_a_datagram_that_was_given_a_vlan_has_a_tag(
    pair: Pair, grh: int, bit: int, vlan: int, told: tuple[int, int, int]
) -> None:
    """libmlx4 (`mlx4_create_ah`) leaves the VLAN unset without its bit, the kernel writes it always
    (`create_iboe_ah`). The service level, here 5, is nowhere in a frame without a tag.
    """
    segment = bytearray(address(pair.b, pair.qb.qpn, vlan=vlan))
    segment[0] |= bit << 5
    segment[5] = grh
    segment[12] |= 5 << 5
    routes = sent_routes(pair)
    assert _told(pair, bytes(segment)) == told
    assert [(route.vlan != NO_VLAN, route.service_level) for route in routes] == [told[:2]]


@pytest.mark.parametrize("tag", [b"", b"\x81\0\xa0\x64"], ids=["untagged", "tagged"])
def test_headers_of_software_and_a_context_say_the_same_of_a_tag(tag: bytes) -> None:
    """A packet of QP1 and a connection's request at service level 5: they have it in the tag."""
    pair = Pair()
    vlans = bytes(8) + (1 << 31 | 100).to_bytes(4, "big")
    pair.b.set_port(SetPort.VLAN_TABLE, vlans.ljust(512, b"\0"))
    routes = sent_routes(pair)
    pair.connect({"pri_sched_queue": 5 << 3, "pri_vlan_valid": bool(tag), "pri_vlan_index": 2})
    gsi = pair.b.create_qp(GSI, ServiceType.MLX, mtu_msgmax=0xAB)
    ready(pair.b, gsi, GSI_QKEY)
    headers = mad_headers(pair.b, pair.a, 8)
    packet = headers[:12] + tag + headers[12:] + bytes(8)
    pair.b.post_send(gsi, SendOpcode.SEND, inline(packet[:44]) + inline(packet[44:]))
    pair.b.post_send(pair.qb, SendOpcode.RDMA_WRITE, remote(0, 0))
    told = (100, 5) if tag else (NO_VLAN, 0)
    assert [(route.vlan, route.service_level) for route in routes] == [told, told]


def test_an_address_of_another_protection_domain_is_refused(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 200)])
    foreign = bytearray(address(pair.b, pair.qb.qpn) + inline(b"not from here"))
    foreign[3] = 9
    pair.post_send(SendOpcode.SEND, bytes(foreign))
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR]
    assert pair.a.state(pair.qa) == QpState.SQER
    assert pair.b.completions(pair.qb) == []
    assert not any(pair.b.host.peek(target, 200))


def test_the_log_tells_entries_with_an_address_from_others(pair: Pair) -> None:
    connected = Pair().connect()
    pair.post_send(SendOpcode.SEND, address(pair.b, pair.qb.qpn) + inline(b"x"))
    connected.a.post_send(connected.qa, SendOpcode.RDMA_WRITE, remote(0, 0))
    for node, what in ((pair.a, What.UD_WQE), (connected.a, What.SQ_WQE)):
        kinds = {event.what for event in node.host.events}
        assert kinds & {What.UD_WQE, What.SQ_WQE} == {what}


def test_wrong_qkey_and_missing_receive_are_dropped(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, address(pair.b, pair.qb.qpn) + inline(b"nobody waits"))
    pair.post_recv([(key, target, 200)])
    pair.post_send(SendOpcode.SEND, address(pair.b, pair.qb.qpn, 0x2222) + inline(b"wrong"))
    assert pair.sent() == [0, 0]
    assert pair.b.completions(pair.qb) == []
    own = address(pair.b, pair.qb.qpn, 0x80000000)  # the queue pair's own Q_Key
    pair.post_send(SendOpcode.SEND_IMM, own + inline(b"right"), immediate=9)
    (got,) = pair.b.completions(pair.qb)
    assert (got.opcode, got.immediate) == (RecvOpcode.SEND_WITH_IMM, 9)


def test_group_reaches_its_members(pair: Pair) -> None:
    gid = bytes.fromhex("ff0e000000000000000000000000c0de")
    index = pair.b.command(Opcode.MGID_HASH, gid)
    record = pack(">II8x", 0, 1) + gid + pack(">I", pair.qb.qpn)
    pair.b.command(Opcode.WRITE_MCG, record.ljust(1024, b"\0"), index)
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 200)])
    group = address(pair.b, 0xFFFFFF, dmac=b"\x33\x33\0\0\xc0\xde")
    group = group[:16] + gid + group[32:]
    pair.post_send(SendOpcode.SEND, group + inline(b"all"))
    (got,) = pair.b.completions(pair.qb)
    assert got.length == 43


def mad_headers(a: Node, b: Node, payload: int) -> bytes:
    """Return what mlx4_ib puts in front of a MAD on RoCE v1: 74 bytes."""
    length = 12 + 8 + payload + 4
    grh = GRH.pack(
        version=6, payload_length=length, next_header=0x1B, hop_limit=64, sgid=a.gid, dgid=b.gid
    )
    bth = BTH.pack(opcode=0x64, pkey=0xFFFF, dest_qpn=1, psn=5)
    deth = DETH.pack(qkey=GSI_QKEY, source_qpn=1)
    return b.mac + a.mac + b"\x89\x15" + bytes(grh) + bytes(bth) + bytes(deth)


def test_mad_over_qp1() -> None:
    pair = Pair()
    qa, qb = (node.create_qp(GSI, ServiceType.MLX, mtu_msgmax=0xAB) for node in (pair.a, pair.b))
    ready(pair.a, qa, GSI_QKEY)
    ready(pair.b, qb, GSI_QKEY)
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    mad = bytes(range(256))
    pair.a.host.poke(source, mad)
    pair.b.post_recv(qb, [(rkey, target, 296)])
    headers = mad_headers(pair.a, pair.b, 256)
    # the first chunk ends at the 64-byte boundary of the entry
    segments = inline(headers[:44]) + inline(headers[44:])
    segments += data((key, source, 256)) + inline(bytes(4))
    # the entry is one slot of 128 bytes: 16 + 48 + 48 + 16 = 128, the ICRC would not fit
    pair.a.post_send(qa, SendOpcode.SEND, segments[:-16])
    assert pair.a.statuses(qa) == [0]
    (got,) = pair.b.completions(qb)
    assert (got.qpn, got.length, got.remote_qpn, got.opcode) == (GSI, 296, 1, RecvOpcode.SEND)
    assert CQE.get_raw(got.raw, "smac") == pair.a.mac
    assert pair.b.host.peek(target, 40) == headers[14:54]
    assert pair.b.host.peek(target + 40, 256) == mad


def test_mad_that_is_no_roce_packet_is_refused() -> None:
    pair = Pair()
    qp = pair.a.create_qp(GSI, ServiceType.MLX, mtu_msgmax=0xAB)
    ready(pair.a, qp, GSI_QKEY)
    pair.a.post_send(qp, SendOpcode.SEND, inline(bytes(90)))
    assert pair.a.statuses(qp) == [CompletionStatus.LOCAL_QP_OP_ERR]
    assert pair.a.state(qp) == QpState.SQER


def test_unreliable_connection() -> None:
    pair = Pair(ServiceType.UC).connect()
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, inline(b"lost: no receive"))
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"written"))
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey ^ 1) + inline(b"dropped"))
    pair.post_recv([(rkey, target + 64, 64)])
    pair.post_send(SendOpcode.SEND, inline(b"received"))
    assert pair.sent() == [0, 0, 0, 0]
    assert pair.b.host.peek(target, 7) == b"written"
    assert pair.b.host.peek(target + 64, 8) == b"received"
    assert [wc.length for wc in pair.b.completions(pair.qb)] == [8]
    pair.post_send(SendOpcode.RDMA_READ, remote(target, rkey))
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR]


@pytest.mark.parametrize("service", [ServiceType.UC, ServiceType.UD])
def test_a_failed_send_without_reliability_leaves_the_receive_side_alone(service: int) -> None:
    """Posted work is flushed until SQERR2RTS."""
    pair, to_b, to_a = Pair(service, rq_shift=6), b"", b""
    if service == ServiceType.UC:
        pair.connect()
    else:
        ready(pair.a, pair.qa)
        ready(pair.b, pair.qb)
        to_b, to_a = address(pair.b, 1), address(pair.a, pair.qa.qpn)
    target, rkey = pair.a.memory(4096)
    pair.post_send(SendOpcode.SEND, to_b + data((3, 0, 5)), ring=False)
    pair.post_send(SendOpcode.SEND, to_b + inline(b"after"))
    assert pair.sent() == [CompletionStatus.LOCAL_PROT_ERR, CompletionStatus.WR_FLUSH_ERR]
    assert pair.a.state(pair.qa) == QpState.SQER
    pair.a.post_recv(pair.qa, [(rkey, target, 200)])
    pair.b.post_send(pair.qb, SendOpcode.SEND, to_a + inline(b"still"))
    assert pair.sent() == [0]
    assert pair.a.host.peek(target + (40 if to_a else 0), 5) == b"still"
    pair.a.modify(pair.qa, Opcode.SQERR2RTS_QP)
    pair.post_send(SendOpcode.SEND, to_b + inline(b"again"))
    assert pair.sent() == [0]


def test_context_query_shows_what_was_set() -> None:
    pair = Pair().connect()
    context = pair.a.query(Opcode.QUERY_QP, pair.qa.qpn)[8:]
    assert QPC.get_raw(context, "pri_rgid") == ipv4_gid(bytes((192, 168, 69, 2)))
    assert QPC.get(context, "local_qpn") == pair.qa.qpn


def test_addresses_are_worked_out_again_when_the_tables_change(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    other = ipv4_gid(bytes((10, 9, 8, 7)))
    segments = address(pair.b, pair.qb.qpn) + inline(b"from whom?")
    for gid in (pair.a.gid, other):
        pair.a.set_port(SetPort.GID_TABLE, gid.ljust(2048, b"\0"))
        for _ in range(2):
            pair.post_recv([(key, target, 200)])
            pair.post_send(SendOpcode.SEND, segments)
            assert GRH.get_raw(pair.b.host.peek(target, 40), "sgid") == gid
    assert pair.sent() == [0] * 4


PRO = Features(pro=True)
HELPER = 0x310
"""The QP number of the queue pair that sends for QP1 with UDP headers."""
IPV6_GID = bytes.fromhex("fe800000000000000000000000000001")


class ProPair(Pair):
    """Two guests with Pro adapters; GID 0 is RoCE v1, GID 1 the same with v2, GID 2 IPv6."""

    def __init__(self) -> None:
        self.fabric = LocalFabric()
        self.seen: list[Message] = []
        self.watched = WatchedFabric(self.fabric)
        self.a = Node("a", 1, self.watched, features=PRO)
        self.b = Node("b", 2, self.watched, features=PRO)
        for node in (self.a, self.b):
            node.set_port(SetPort.ROCE_ADDR, gid_table((node.gid, 0), (node.gid, 2), (IPV6_GID, 2)))

        def note(source: FabricPort, message: Message) -> bool:
            if source is self.a.port:
                self.seen.append(message)
            return True

        self.watched.watch = note


@pytest.fixture
def pro() -> ProPair:
    """Two guests with Pro adapters."""
    return ProPair()


def config_dev(driver: CommandDriver, flags: int = CONFIG_DEV_ROCE_PORT, port: int = 4791) -> int:
    """CONFIG_DEV; the status."""
    mailbox = CONFIG_DEV.pack(update_flags=flags, roce_port=port)
    return driver.try_command(Opcode.CONFIG_DEV, bytes(mailbox))[0]


def test_the_capability_belongs_to_the_pro(pro: ProPair) -> None:
    plain = Node("c", 3, LocalFabric())
    assert (plain.adapter.config.device_id, pro.a.adapter.config.device_id) == (4099, 4103)
    for node, capable in ((pro.a, True), (plain, False)):
        flags = BmmeFlag(QUERY_DEV_CAP.get(node.query(Opcode.QUERY_DEV_CAP), "bmme_flags"))
        assert (BmmeFlag.ROCE_V1_V2 in flags) == capable
        assert config_dev(node) == (Status.OK if capable else Status.BAD_OP)
    assert config_dev(pro.a, port=4792) == Status.BAD_PARAM
    assert config_dev(pro.a, flags=1) == Status.BAD_PARAM


def test_the_context_says_which_version_a_connection_speaks(pro: ProPair) -> None:
    qa, qb = pro.a.create_qp(0x240), pro.b.create_qp(0x250)
    pro.a.to_rtr(qa, pro.b, qb.qpn, roce_mode=ROCE_MODE_V2, pri_mgid_index=1)
    pro.b.to_rtr(qb, pro.a, qa.qpn, roce_mode=ROCE_MODE_V2, pri_mgid_index=1)
    pro.a.to_rts(qa)
    place, rkey = pro.b.memory(4096)
    pro.a.post_send(qa, SendOpcode.RDMA_WRITE, remote(place, rkey) + inline(b"in UDP"))
    assert [wc.status for wc in pro.a.completions(qa)] == [0]
    (request,) = pro.seen
    assert isinstance(request, Request)
    assert request.route.roce == 2


@pytest.mark.parametrize(("index", "version"), [(0, 1), (1, 2), (2, 2)])
def test_the_gid_says_which_header_a_datagram_has(pro: ProPair, index: int, version: int) -> None:
    qa = pro.a.create_qp(0x240, ServiceType.UD, rq_shift=6)
    qb = pro.b.create_qp(0x250, ServiceType.UD, rq_shift=6)
    ready(pro.a, qa)
    ready(pro.b, qb)
    target, key = pro.b.memory(4096)
    pro.b.post_recv(qb, [(key, target, 100)])
    segment = bytearray(address(pro.b, qb.qpn, QKEY))
    segment[9] = index  # of the GID
    pro.a.post_send(qa, SendOpcode.SEND, bytes(segment) + inline(b"hello"))
    (got,) = pro.b.completions(qb)
    assert (got.status, got.length) == (0, 45)
    assert CQE.get(got.raw, "sl_vid") == 0  # the VLAN's; the kind of header stands nowhere
    (message,) = pro.seen
    assert isinstance(message, Datagram)
    assert message.route.roce == version
    header = pro.b.host.peek(target, 40)
    if index == 1:
        assert header[:20] == bytes(20)
        ip = IPV4.unpack(header[20:])
        assert (ip["source"], ip["destination"]) == (pro.a.gid[12:], pro.b.gid[12:])
        assert (ip["protocol"], ip["ttl"]) == (PROTOCOL_UDP, 7)
        assert ip["total_length"] == 20 + 8 + 12 + 8 + 8 + 4
        assert ones_complement_sum(header[20:]) == 0
    else:
        following = IPV6.get(header, "next_header")
        assert following == (PROTOCOL_UDP if version == 2 else 0x1B)
        assert IPV6.get_raw(header, "source") == (pro.a.gid, b"", IPV6_GID)[index]
    assert pro.b.host.peek(target + 40, 5) == b"hello"


def packet(pro: ProPair, payload: bytes, *, ipv6: bool = False, port: int = ROCE_PORT) -> bytes:
    """A MAD for QP1 with the headers of `build_mlx_header` for a RoCE v2 GID."""
    transport = BTH.pack(opcode=BthOpcode.UD_SEND_ONLY, pkey=0xFFFF, dest_qpn=1)
    transport += DETH.pack(qkey=GSI_QKEY, source_qpn=HELPER)
    length = UDP.size + len(transport) + len(payload) + 4
    udp = UDP.pack(source_port=0xC000, destination_port=port, length=length)
    if ipv6:
        ip = IPV6.pack(version=6, payload_length=length, next_header=17, hop_limit=9,
                       source=IPV6_GID, destination=IPV6_GID)  # fmt: skip
    else:
        ip = IPV4.pack(version=4, header_words=5, total_length=20 + length, ttl=9, protocol=17,
                       source=pro.a.gid[12:], destination=pro.b.gid[12:])  # fmt: skip
        IPV4.set(ip, "checksum", ones_complement_sum(bytes(ip)))
    kind = b"\x86\xdd" if ipv6 else b"\x08\x00"
    return pro.b.mac + pro.a.mac + kind + bytes(ip + udp + transport) + payload + bytes(4)


def chunks(data: bytes) -> bytes:
    """Inline segments that do not cross 64 bytes of the entry."""
    first, rest = data[:44], data[44:]
    return inline(first) + inline(rest)


@pytest.mark.parametrize("ipv6", [False, True])
def test_the_helper_of_qp1_sends_what_qp1_receives(pro: ProPair, ipv6: bool) -> None:
    helper = pro.a.create_qp(HELPER, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    gsi = pro.b.create_qp(GSI, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    ready(pro.a, helper, GSI_QKEY)
    ready(pro.b, gsi, GSI_QKEY)
    inbox, key = pro.b.memory(4096)
    pro.b.post_recv(gsi, [(key, inbox, 296)])
    pro.a.post_send(helper, SendOpcode.SEND, chunks(packet(pro, b"mad!", ipv6=ipv6)))
    assert [wc.status for wc in pro.a.completions(helper)] == [0]
    (got,) = pro.b.completions(gsi)
    assert (got.status, got.length, got.remote_qpn) == (0, 44, HELPER)
    assert pro.b.host.peek(inbox + 40, 4) == b"mad!"
    header = pro.b.host.peek(inbox, 40)
    assert (header[:20] == bytes(20)) != ipv6


def test_other_udp_is_no_roce(pro: ProPair) -> None:
    helper = pro.a.create_qp(HELPER, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    ready(pro.a, helper, GSI_QKEY)
    pro.a.post_send(helper, SendOpcode.SEND, chunks(packet(pro, b"mad!", port=53)))
    assert [wc.status for wc in pro.a.completions(helper)] == [2]
