"""RoCE v2, which a ConnectX-3 Pro speaks: GIDs have versions, headers are IP, QP1 has a helper."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Message, Request
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, BmmeFlag
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import ROCE_MODE_V2, ServiceType
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT, ROCE_ADDRESS
from bluebridge.device.layout.net.ip import (
    IPV4,
    IPV6,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import BTH, DETH, GSI_QKEY, BthOpcode
from bluebridge.device.mlx4.settings.config import Features
from tests.models.hca_commands import CommandDriver
from tests.models.rdma_node import Node, Pair, SendOpcode, inline, remote
from tests.models.watched_fabric import WatchedFabric
from tests.unit.rdma.test_qp_datagram import GSI, QKEY, address, ready

PRO = Features(pro=True)
HELPER = 0x310
"""The QP number of the queue pair that sends for QP1 with UDP headers."""
IPV6_GID = bytes.fromhex("fe800000000000000000000000000001")


def gid_table(*entries: tuple[bytes, int]) -> bytes:
    """SET_PORT ROCE_ADDR as `mlx4_ib_update_gids_v1_v2` builds it."""
    return b"".join(
        bytes(ROCE_ADDRESS.pack(gid=gid, version=version)) for gid, version in entries
    ).ljust(4096, b"\0")


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
def pair() -> ProPair:
    """Two guests with Pro adapters."""
    return ProPair()


def config_dev(driver: CommandDriver, flags: int = CONFIG_DEV_ROCE_PORT, port: int = 4791) -> int:
    """CONFIG_DEV; the status."""
    mailbox = CONFIG_DEV.pack(update_flags=flags, roce_port=port)
    return driver.try_command(Opcode.CONFIG_DEV, bytes(mailbox))[0]


def test_the_capability_belongs_to_the_pro(pair: ProPair) -> None:
    plain = Node("c", 3, LocalFabric())
    assert (plain.adapter.config.device_id, pair.a.adapter.config.device_id) == (4099, 4103)
    for node, capable in ((pair.a, True), (plain, False)):
        flags = BmmeFlag(QUERY_DEV_CAP.get(node.query(Opcode.QUERY_DEV_CAP), "bmme_flags"))
        assert (BmmeFlag.ROCE_V1_V2 in flags) == capable
        assert config_dev(node) == (Status.OK if capable else Status.BAD_OP)
    assert config_dev(pair.a, port=4792) == Status.BAD_PARAM
    assert config_dev(pair.a, flags=1) == Status.BAD_PARAM


def test_the_context_says_which_version_a_connection_speaks(pair: ProPair) -> None:
    qa, qb = pair.a.create_qp(0x240), pair.b.create_qp(0x250)
    for node, qp, peer, target in ((pair.a, qa, pair.b, qb), (pair.b, qb, pair.a, qa)):
        node.to_rtr(qp, peer, target.qpn, roce_mode=ROCE_MODE_V2, pri_mgid_index=1)
        node.to_rts(qp)
    place, rkey = pair.b.memory(4096)
    pair.a.post_send(qa, SendOpcode.RDMA_WRITE, remote(place, rkey) + inline(b"in UDP"))
    assert [wc.status for wc in pair.a.completions(qa)] == [0]
    (request,) = pair.seen
    assert isinstance(request, Request)
    assert request.route.roce == 2


@pytest.mark.parametrize(("index", "version"), [(0, 1), (1, 2), (2, 2)])
def test_the_gid_says_which_header_a_datagram_has(pair: ProPair, index: int, version: int) -> None:
    qa = pair.a.create_qp(0x240, ServiceType.UD, rq_shift=6)
    qb = pair.b.create_qp(0x250, ServiceType.UD, rq_shift=6)
    ready(pair.a, qa)
    ready(pair.b, qb)
    target, key = pair.b.memory(4096)
    pair.b.post_recv(qb, [(key, target, 100)])
    segment = bytearray(address(pair.b, qb.qpn, QKEY))
    segment[9] = index  # of the GID
    pair.a.post_send(qa, SendOpcode.SEND, bytes(segment) + inline(b"hello"))
    (got,) = pair.b.completions(qb)
    assert (got.status, got.length) == (0, 45)
    (message,) = pair.seen
    assert isinstance(message, Datagram)
    assert message.route.roce == version
    header = pair.b.host.peek(target, 40)
    if index == 1:
        assert header[:20] == bytes(20)
        ip = IPV4.unpack(header[20:])
        assert (ip["source"], ip["destination"]) == (pair.a.gid[12:], pair.b.gid[12:])
        assert (ip["protocol"], ip["ttl"]) == (PROTOCOL_UDP, 7)
        assert ip["total_length"] == 20 + 8 + 12 + 8 + 8 + 4
        assert ones_complement_sum(header[20:]) == 0
    else:
        following = IPV6.get(header, "next_header")
        assert following == (PROTOCOL_UDP if version == 2 else 0x1B)
        assert IPV6.get_raw(header, "source") == (pair.a.gid, b"", IPV6_GID)[index]
    assert pair.b.host.peek(target + 40, 5) == b"hello"


def packet(pair: ProPair, payload: bytes, *, ipv6: bool = False, port: int = ROCE_PORT) -> bytes:
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
                       source=pair.a.gid[12:], destination=pair.b.gid[12:])  # fmt: skip
        IPV4.set(ip, "checksum", ones_complement_sum(bytes(ip)))
    kind = b"\x86\xdd" if ipv6 else b"\x08\x00"
    return pair.b.mac + pair.a.mac + kind + bytes(ip + udp + transport) + payload + bytes(4)


def chunks(data: bytes) -> bytes:
    """Inline segments that do not cross 64 bytes of the entry."""
    first, rest = data[:44], data[44:]
    return inline(first) + inline(rest)


@pytest.mark.parametrize("ipv6", [False, True])
def test_the_helper_of_qp1_sends_what_qp1_receives(pair: ProPair, ipv6: bool) -> None:
    helper = pair.a.create_qp(HELPER, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    gsi = pair.b.create_qp(GSI, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    ready(pair.a, helper, GSI_QKEY)
    ready(pair.b, gsi, GSI_QKEY)
    inbox, key = pair.b.memory(4096)
    pair.b.post_recv(gsi, [(key, inbox, 296)])
    pair.a.post_send(helper, SendOpcode.SEND, chunks(packet(pair, b"mad!", ipv6=ipv6)))
    assert [wc.status for wc in pair.a.completions(helper)] == [0]
    (got,) = pair.b.completions(gsi)
    assert (got.status, got.length, got.remote_qpn) == (0, 44, HELPER)
    assert pair.b.host.peek(inbox + 40, 4) == b"mad!"
    header = pair.b.host.peek(inbox, 40)
    assert (header[:20] == bytes(20)) != ipv6


def test_other_udp_is_no_roce(pair: ProPair) -> None:
    helper = pair.a.create_qp(HELPER, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    ready(pair.a, helper, GSI_QKEY)
    pair.a.post_send(helper, SendOpcode.SEND, chunks(packet(pair, b"mad!", port=53)))
    assert [wc.status for wc in pair.a.completions(helper)] == [2]
