"""Traffic over InfiniBand: addresses by LID, GRHs where they are asked for, partitions, groups."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Datagram, Message, Request, Response
from bluebridge.device.layout.ib.link import LRH
from bluebridge.device.layout.mlx4.commands import Opcode, OptPar
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.cqe import CQE
from bluebridge.device.layout.mlx4.ports import MCG, MCG_BLOCK_LOOPBACK
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import BTH, DETH, GRH, GRH_SIZE, GSI_QKEY, BthOpcode
from tests.models.ib_node import IbNode, Subnet, datagram_segment
from tests.models.rdma_node import ALL_REMOTE, TestQp, data, inline, remote

QKEY = 0x1B
GROUP_LID = 0xC001
GROUP = bytes.fromhex("ff12401bffff00000000000000000001")


def connect(subnet: Subnet, **more: int) -> tuple[TestQp, TestQp]:
    """RC queue pairs of both guests, in RTS."""
    a, b = subnet.a, subnet.b
    qa, qb = a.create_qp(0x240, **more), b.create_qp(0x250, **more)
    for node, qp, peer, other in ((a, qa, b, qb), (b, qb, a, qa)):
        mask = 1 << OptPar.RRE | 1 << OptPar.RAE | 1 << OptPar.RWE
        node.modify(
            qp, Opcode.INIT2RTR_QP, mask, remote_qpn=other.qpn, next_recv_psn=100, mtu=5,
            msg_max=30, min_rnr_timer=1, pri_rlid=peer.agent.lid, pri_sched_queue=0x83 | 5 << 2,
            **ALL_REMOTE,
        )  # fmt: skip
        node.to_rts(qp)
    return qa, qb


def test_a_connection_by_lid(subnet: Subnet) -> None:
    a, b = subnet.a, subnet.b
    qa, qb = connect(subnet)
    route = a.adapter.qps.get(qa.qpn)
    assert route is not None
    assert (route.route.smac, route.route.dmac, route.route.service_level) == (b"\0\2", b"\0\3", 5)
    source, target = a.memory(8192), b.memory(8192)
    a.host.poke(source[0], bytes(range(256)) * 32)
    write = remote(target[0], target[1]) + data((source[1], source[0], 8192))
    a.post_send(qa, SendOpcode.RDMA_WRITE, write)
    assert [wc.status for wc in a.completions(qa)] == [0]
    assert b.host.peek(target[0], 8192) == bytes(range(256)) * 32
    read = remote(target[0], target[1]) + data((source[1], source[0] + 4096, 4096))
    a.post_send(qa, SendOpcode.RDMA_READ, read)
    b.post_recv(qb, [(target[1], target[0], 64)])
    a.post_send(qa, SendOpcode.SEND, inline(b"hello"))
    assert [wc.status for wc in a.completions(qa)] == [0, 0]
    (got,) = b.completions(qb)
    assert (got.length, b.host.peek(target[0], 5)) == (5, b"hello")


def test_a_connection_needs_a_port_in_service(subnet: Subnet) -> None:
    qa, _ = connect(subnet)
    subnet.b.command(Opcode.CLOSE_PORT, modifier=1)
    subnet.a.post_send(qa, SendOpcode.SEND, inline(b"hello"))
    subnet.a.host.run(2)
    assert [wc.status for wc in subnet.a.completions(qa)] == [0x15]


def test_partitions_keep_connections_apart(subnet: Subnet) -> None:
    subnet.b.agent.set_pkeys(0, [0x8001])
    qa, qb = connect(subnet)
    subnet.a.post_send(qa, SendOpcode.SEND, inline(b"hello"))
    subnet.a.host.run(2)
    assert [wc.status for wc in subnet.a.completions(qa)] == [0x15]
    assert subnet.b.completions(qb) == []


def test_a_change_of_lid_reaches_connections(subnet: Subnet) -> None:
    qa, _ = connect(subnet)
    seen: list[bytes] = []

    def note(source: FabricPort, message: Message) -> bool:
        assert isinstance(message, Request | Response | Datagram)
        seen.append(message.route.smac)
        return True

    subnet.watched.watch = note
    info = bytearray(subnet.a.agent.info)
    info[16:18], info[32] = b"\0\x20", info[32] & 0xF0
    subnet.a.agent.set_info(bytes(info))
    subnet.a.post_send(qa, SendOpcode.SEND, inline(b"hello"))
    assert seen[0] == b"\0\x20"


def ud(node: IbNode, qpn: int, **more: int) -> TestQp:
    values = {"qkey": QKEY, "msg_max": 12, "mtu": 5, **more}
    qp = node.create_qp(qpn, ServiceType.UD, **values)
    node.modify(qp, Opcode.INIT2RTR_QP, pri_sched_queue=0x83, pri_counter_index=0xFF)
    node.modify(qp, Opcode.RTR2RTS_QP)
    return qp


def test_datagrams_without_and_with_a_grh(subnet: Subnet) -> None:
    a, b = subnet.a, subnet.b
    qa, qb = ud(a, 0x240), ud(b, 0x250)
    address, key = b.memory(8192)
    for offset in (0, 4096):
        b.post_recv(qb, [(key, address + offset, 2048)])
    plain = datagram_segment(b.agent.lid, qb.qpn, QKEY)
    a.post_send(qa, SendOpcode.SEND, plain + inline(b"plain"))
    routed = datagram_segment(b.agent.lid, qb.qpn, QKEY, dgid=b.agent.gid(0))
    a.post_send(qa, SendOpcode.SEND, routed + inline(b"routed"))
    first, second = b.completions(qb)
    assert (first.length, CQE.get(first.raw, "grh"), first.raw[14:16]) == (45, 0, b"\0\2")
    assert b.host.peek(address, 45) == bytes(GRH_SIZE) + b"plain"
    assert (second.length, CQE.get(second.raw, "grh"), second.remote_qpn) == (46, 1, 0x240)
    grh = GRH.unpack(b.host.peek(address + 4096, GRH_SIZE))
    assert (grh["sgid"], grh["dgid"]) == (a.agent.gid(0), b.agent.gid(0))


def test_datagrams_to_oneself(subnet: Subnet) -> None:
    a = subnet.a
    qp, other = ud(a, 0x240), ud(a, 0x241)
    address, key = a.memory(4096)
    a.post_recv(other, [(key, address, 256)])
    a.post_send(qp, SendOpcode.SEND, datagram_segment(2, other.qpn, QKEY) + inline(b"me"))
    assert [wc.length for wc in a.completions(other)] == [42]


def test_the_partition_of_a_datagram(subnet: Subnet) -> None:
    """The last place of the table is the 128th."""
    a, b = subnet.a, subnet.b
    a.agent.set_pkeys(0, [0x7FFF, 0x8005])
    b.agent.set_pkeys(0, [0xFFFF, 0x8007])
    b.agent.set_pkeys(3, [0] * 31 + [0x0005])
    limited, five = ud(a, 0x240), ud(a, 0x241, pri_pkey_index=1)
    default, other = ud(b, 0x250), ud(b, 0x251, pri_pkey_index=127)
    address, key = b.memory(4096)
    for qp in (default, other):
        b.post_recv(qp, [(key, address, 256)])
    for source, target in ((limited, default), (five, default), (five, other), (limited, other)):
        segment = datagram_segment(b.agent.lid, target.qpn, QKEY)
        a.post_send(source, SendOpcode.SEND, segment + inline(b"x"))
    assert [(wc.length, wc.immediate) for wc in b.completions(default)] == [(41, 0)]
    assert [(wc.length, wc.immediate) for wc in b.completions(other)] == [(41, 127)]
    assert b.agent.get("pkey_violations") == 2


def attach(node: IbNode, qpn: int, group: bytes = GROUP, flags: int = 0) -> None:
    """Put a queue pair into the adapter's table of groups."""
    bucket = node.command(Opcode.MGID_HASH, group)
    record = MCG.pack(members=1, gid=group) + (qpn | flags).to_bytes(4, "big")
    node.command(Opcode.WRITE_MCG, bytes(record), bucket)


def test_groups_reach_members_by_the_switch_and_the_sender_by_its_adapter(subnet: Subnet) -> None:
    a, b = subnet.a, subnet.b
    qa, qb = ud(a, 0x240), ud(b, 0x250)
    attach(a, qa.qpn)
    attach(b, qb.qpn)
    for node, qp in ((a, qa), (b, qb)):
        address, key = node.memory(4096)
        node.post_recv(qp, [(key, address, 256)])
        node.post_recv(qp, [(key, address, 256)])
    segment = datagram_segment(GROUP_LID, 0xFFFFFF, QKEY, dgid=GROUP)
    a.post_send(qa, SendOpcode.SEND, segment + inline(b"all"))
    assert [wc.length for wc in a.completions(qa) if not wc.send] == [43]
    assert b.completions(qb) == []  # the switch does not know the group
    subnet.fabric.switch.node.multicast[GROUP_LID] = 0b110
    attach(a, qa.qpn, flags=MCG_BLOCK_LOOPBACK)
    a.post_send(qa, SendOpcode.SEND, segment + inline(b"all"))
    assert [wc for wc in a.completions(qa) if not wc.send] == []
    assert [wc.length for wc in b.completions(qb)] == [43]
    assert a.agent.counters.multicast_xmit_packets == 1
    assert b.agent.counters.multicast_rcv_packets == 1


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"\0\0" + bytes(6) + bytes(40),  # no transport header follows
        b"\0\2" + bytes(6) + bytes(8),  # too short
        b"\0\2\0\3\0\0\0\0\x04" + bytes(60),  # not a datagram
    ],
)
def test_headers_that_make_no_sense(subnet: Subnet, headers: bytes) -> None:
    a = subnet.a
    a.post_send(a.gsi, SendOpcode.SEND, inline(headers) if headers else b"")
    assert [wc.status for wc in a.completions(a.gsi)] == [2]


@pytest.mark.parametrize(("lmc", "bits", "lid"), [(0, 1, 2), (1, 1, 3), (0, 0x7F, 2)])
def test_path_bits_reach_as_far_as_the_lids_of_the_port(
    subnet: Subnet, lmc: int, bits: int, lid: int
) -> None:
    """Nobody sends with the LID of another port."""
    subnet.a.agent.put("lmc", lmc)
    headers = LRH.pack(next_header=2, dlid=3, slid=bits)
    headers += BTH.pack(opcode=BthOpcode.UD_SEND_ONLY, pkey=0xFFFF, dest_qpn=1)
    headers += DETH.pack(qkey=GSI_QKEY, source_qpn=1)
    message = subnet.a.port.parse_packet(bytes(headers) + bytes(260), 0)
    assert message.route.smac == lid.to_bytes(2, "big")
