"""Tenants under others' addresses, users' queue pairs in subnet management: they get nothing."""

from __future__ import annotations

import re
from functools import partial

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Response, Route, Train
from bluebridge.device.fabric.ownership import AGE_SECONDS, MOST_LEARNED
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.fabric.subnet.port_info import BadField, ManagementKey
from bluebridge.device.layout.ib.link import LINK_ACTIVE, LRH, PHYSICAL_DISABLED
from bluebridge.device.layout.ib.mad import CLASS_PORT_INFO, PORT_INFO, SMP, Method, SmpAttribute
from bluebridge.device.layout.ib.sa import SaAttribute
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import BTH, DETH, NO_GID, BthOpcode, ipv4_gid
from bluebridge.device.rdma.connected.packet_wire import PacketWire
from bluebridge.device.server.control import ControlCommands
from tests.models.fake_host import FakeHost
from tests.models.ib_node import Subnet, datagram_segment, smp
from tests.models.rdma_node import Node, Pair, data, inline, remote
from tests.unit.fabric.test_fabric import Port
from tests.unit.fabric.test_ib_administrator import query
from tests.unit.rdma.test_qp_datagram import address, ready

PATTERN = b"for b only"


class TrustingPair(Pair):
    """A pair on a fabric that believes every address."""

    def make_fabric(self) -> LocalFabric:
        return LocalFabric(trusting=True)


class Tenants:
    """A connected pair, and a third guest on the same fabric that knows all its numbers."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair.connect()
        self.evil = Node("c", 3, self.pair.fabric)
        self.target, self.rkey = self.pair.b.memory(4096)
        self.pair.b.host.poke(self.target, PATTERN)

    def impersonate_a(self) -> None:
        """The third guest programs the addresses of the first."""
        self.evil.open_port(1, self.pair.a.mac, self.pair.a.gid)

    def write_as_a(self) -> bytes:
        """An RDMA WRITE to b by a queue pair of a's number; what b's memory holds then."""
        pair, evil = self.pair, self.evil
        qp = evil.create_qp(pair.qa.qpn)
        evil.to_rtr(qp, pair.b, pair.qb.qpn)
        evil.to_rts(qp, retry_count=1)
        evil.post_send(qp, SendOpcode.RDMA_WRITE, remote(self.target, self.rkey) + inline(b"evil"))
        evil.host.run(1)
        return pair.b.host.peek(self.target, len(PATTERN))


def test_the_addresses_of_another_are_no_use() -> None:
    tenants = Tenants(Pair())
    tenants.impersonate_a()
    assert tenants.write_as_a() == PATTERN
    assert tenants.pair.fabric.statistics.spoofed


def test_who_tests_spoofing_switches_it_off() -> None:
    tenants = Tenants(TrustingPair())
    tenants.impersonate_a()
    assert tenants.write_as_a().startswith(b"evil")
    assert not tenants.pair.fabric.statistics.spoofed


def test_the_owner_goes_on_receiving() -> None:
    tenants = Tenants(Pair())
    tenants.impersonate_a()
    pair = tenants.pair
    there, key = pair.a.memory(4096)
    pair.a.post_recv(pair.qa, [(key, there, 64)])
    pair.b.post_send(pair.qb, SendOpcode.SEND, inline(b"for a"))
    assert pair.a.host.peek(there, 5) == b"for a"


def test_status_says_whose_port_used_addresses_of_others() -> None:
    tenants = Tenants(Pair())
    tenants.impersonate_a()
    tenants.write_as_a()
    pair, evil = tenants.pair, tenants.evil
    rules = FaultRules(pair.a.host.call_later, EventLog())
    hcas = {"a": pair.a.hca, "c": evil.hca}
    trespassed = {
        f"{name}/1": partial(pair.fabric.trespasses, hca.adapter.ports[0])
        for name, hca in hcas.items()
    }
    commands = ControlCommands(hcas, rules, trespassed)
    a, c, _ = commands.execute("status")
    assert a == "a/1 working cable in link up"
    assert re.search("addresses of others: [1-9]+ messages dropped, [1-9]+ claims refused", c)


def test_another_port_gets_an_address_when_its_owner_gives_it_up() -> None:
    """An address that was not burned in, such as that of a service which moves."""
    fabric = LocalFabric()
    a, b = Node("a", 1, fabric), Node("b", 2, fabric)
    moving = ipv4_gid(bytes((192, 168, 69, 77)))
    for node in (a, b):
        node.set_port(SetPort.GID_TABLE, moving.ljust(2048, b"\0"))
    route = Route(b.mac, a.mac, moving, a.gid)
    fabric.send(b.port, Response(route, 1, 0, 0))
    assert fabric.statistics.spoofed == 1
    assert fabric.trespasses(b.port) == (1, 1)
    assert fabric.trespasses(a.port) == (0, 0)
    a.set_port(SetPort.GID_TABLE, a.gid.ljust(2048, b"\0"))
    fabric.send(b.port, Response(route, 1, 0, 0))
    assert fabric.statistics.spoofed == 1


@pytest.mark.parametrize("packets", [False, True], ids=["messages", "packets"])
@pytest.mark.parametrize("own", [False, True])
def test_a_datagram_from_the_gid_of_another_is_dropped_on_each_network(
    packets: bool, own: bool
) -> None:
    """By a guest that keeps its own MAC address."""
    fabric = LocalFabric()
    host = FakeHost()
    network = NetworkSettings(packets=packets)
    a, b, evil = (
        Node(
            name, number, PacketWire(fabric, host.call_soon, []) if packets else fabric,
            network=network,
        )
        for number, name in enumerate("abc", 1)
    )  # fmt: skip
    if not own:
        evil.open_port(1, evil.mac, a.gid)
    sender, receiver = (node.create_qp(0x260, ServiceType.UD, rq_shift=6) for node in (evil, b))
    ready(evil, sender)
    ready(b, receiver)
    target, key = b.memory(4096)
    b.post_recv(receiver, [(key, target, 200)])
    evil.post_send(sender, SendOpcode.SEND, address(b, receiver.qpn) + inline(b"datagram"))
    host.run()
    assert len(b.completions(receiver)) == own
    assert fabric.statistics.spoofed == (not own)


MAPPED = bytes(10) + b"\xff\xff"
IP_A, IP_B, NO_IP = bytes((10, 9, 0, 1)), bytes((10, 9, 0, 2)), bytes(4)
IPV6_A, IPV6_B = (bytes.fromhex("fe80").ljust(15, b"\0") + last for last in (b"\1", b"\2"))
MACS = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"


def ipv4(source: bytes) -> bytes:
    return b"\x08\0" + b"\x45".ljust(12, b"\0") + source + bytes(30)


def arp(sender: bytes) -> bytes:
    return b"\x08\x06" + bytes(14) + sender + bytes(10)


def ipv6(source: bytes, *headers: bytes, kind: str = "86dd", following: int = 59) -> bytes:
    head = b"\x60".ljust(6, b"\0") + bytes((following, 255)) + source + bytes(16)
    return bytes.fromhex(kind) + head + b"".join(headers)


def advertised(target: bytes) -> bytes:
    return b"\x88".ljust(8, b"\0") + target


OPTIONS = bytes((58, 1)) + bytes(14)
"""A header of IPv6 of 16 bytes, behind which ICMPv6 follows."""
TAGS = b"\x88\xa8\0\7\x81\0\0\5"


@pytest.mark.parametrize(
    ("payload", "genuine"),
    [
        (ipv4(IP_A), False), (ipv4(IP_B), True), (ipv4(NO_IP), True), (TAGS + ipv4(IP_A), False),
        (arp(IP_A), False), (arp(IP_B), True), (arp(NO_IP), True),
        (ipv6(IPV6_A), False), (ipv6(IPV6_B), True), (ipv6(MAPPED + IP_A), False),
        (ipv6(IPV6_A, kind="8915"), False), (ipv6(IPV6_B, kind="8915"), True),
        (ipv6(IPV6_B, advertised(IPV6_A), following=58), False),
        (ipv6(IPV6_B, advertised(IPV6_B), following=58), True),
        (ipv6(IPV6_B, OPTIONS, advertised(IPV6_A), following=60), False),
        (ipv6(IPV6_B, *[bytes((60, 0)) + bytes(6)] * 999, OPTIONS, advertised(IPV6_A),
              following=60), False),
        (ipv6(IPV6_B, OPTIONS, following=60), True), (ipv6(IPV6_B, b"\x3a", following=60), True),
        (TAGS * 500 + ipv4(IP_A), False), (TAGS * 500, True),
        (ipv6(NO_GID), True), (b"\x88\xb5" + IP_A * 12, True), (ipv4(IP_A)[:16], True),
        (b"", True),
    ],
)  # fmt: skip
def test_frames_from_an_address_of_another_are_dropped(payload: bytes, genuine: bool) -> None:
    """The unspecified address, which probes have, belongs to nobody, even if one announces it."""
    fabric = LocalFabric()
    a, b = Port(fabric, MACS[0]), Port(fabric, MACS[1])
    hers = {MACS[0], MAPPED + IP_A, IPV6_A, MAPPED + NO_IP, NO_GID}
    fabric.announce(a, hers, up=True)
    fabric.announce(b, {MACS[1], MAPPED + IP_B, IPV6_B}, up=True)
    fabric.send(b, Frames(MACS[0], [Train([MACS[0] + MACS[1] + payload])]))
    fabric.send(b, Frames(MACS[0], [Train([MACS[0] + MACS[0] + payload])]))
    assert (len(a.got), fabric.trespasses(b)[0]) == (genuine, 2 - genuine)


def test_a_trunk_owns_what_it_sends_from_until_it_is_quiet_for_long() -> None:
    """And a bounded number of addresses; more belong to nobody."""
    time = 0.0
    fabric = LocalFabric(now=lambda: time)
    trunk, a = Port(fabric, MACS[0]), Port(fabric, MACS[1])
    fabric.learn_from(trunk)
    trunk.announce(up=True)

    def use(port: Port, number: int) -> int:
        """Send from an address; what was dropped of all the port has sent."""
        frame = b"\xff" * 6 + min(port.macs) + ipv4(number.to_bytes(4, "big"))
        fabric.send(port, Frames(b"\xff" * 6, [Train([frame])]))
        return fabric.trespasses(port)[0]

    for number in range(1, 10 * MOST_LEARNED):
        assert use(trunk, number) == 0
    trunk.announce(up=True)  # which it was
    assert use(a, 1) == 1
    assert use(a, MOST_LEARNED + 1) == 1
    time = 0.9 * AGE_SECONDS
    assert use(trunk, 1) == 0
    time = 1.1 * AGE_SECONDS
    assert (use(a, 1), use(a, 2)) == (2, 2)
    assert use(trunk, MOST_LEARNED + 1) == 0
    assert use(a, MOST_LEARNED + 1) == 3
    trunk.announce(up=False)
    assert use(a, 1) == 3


@pytest.mark.parametrize("tagged", [False, True])
def test_a_connection_within_a_vlan_hears_nobody_outside(tagged: bool) -> None:
    pair = Pair()
    pair.b.set_port(SetPort.VLAN_TABLE, (1 << 31 | 5).to_bytes(4, "big").ljust(512, b"\0"))
    pair.connect(rtr={"pri_vlan_valid": int(tagged), "pri_vlan_index": 0})
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"evil"))
    pair.run(0.3)
    assert pair.b.host.peek(target, 4) == (bytes(4) if tagged else b"evil")


SWITCH_LID = 1
KEY = 0x1122334455667788


def disabling(port: int) -> bytearray:
    """Return what takes the link of a port of the switch down."""
    info = PORT_INFO.pack(physical_state=PHYSICAL_DISABLED)
    return smp(SmpAttribute.PORT_INFO, port, method=Method.SET, payload=info)


def test_a_user_cannot_send_to_qp0(subnet: Subnet) -> None:
    """A UD work request with target 0, as any program may post it."""
    user = subnet.a.create_qp(0x260, ServiceType.UD, mtu_msgmax=0xAB, qkey=0)
    subnet.a.modify(user, Opcode.INIT2RTR_QP, pri_sched_queue=0x3F)
    subnet.a.modify(user, Opcode.RTR2RTS_QP)
    address, key = subnet.a.memory(4096)
    for port in (1, 2):
        subnet.a.host.poke(address, disabling(port))
        segment = datagram_segment(SWITCH_LID, 0, 0)
        subnet.a.post_send(user, SendOpcode.SEND, segment + data((key, address, 256)))
    subnet.clock.run(1)
    assert (subnet.a.agent.state, subnet.b.agent.state) == (LINK_ACTIVE, LINK_ACTIVE)


@pytest.mark.parametrize(("lane", "source"), [(0, 0), (15, 1)])
def test_headers_that_qp1_builds_do_not_reach_qp0(subnet: Subnet, lane: int, source: int) -> None:
    node = subnet.a
    lrh = LRH.pack(virtual_lane=lane, next_header=2, dlid=SWITCH_LID)
    bth = BTH.pack(opcode=BthOpcode.UD_SEND_ONLY, pkey=0xFFFF, dest_qpn=0)
    deth = DETH.pack(source_qpn=source)
    address, key = node.memory(4096)
    node.host.poke(address, disabling(2))
    headers = inline(bytes(lrh + bth + deth))
    entry = headers + data((key, address, 256)) + inline(bytes(4))
    node.post_send(node.gsi, SendOpcode.SEND, entry)
    subnet.clock.run(1)
    assert subnet.b.agent.state == LINK_ACTIVE


def test_a_packet_on_the_wrong_lane_is_sent_and_lost(subnet: Subnet) -> None:
    """The headers of iPXE's leave request, made of a NULL address: `ib_mcast.c: ib_mcast_leave`."""
    node = subnet.a
    headers = bytes.fromhex("00020000004800026400ffff00000000007d86f98001000000000001")
    address, key = node.memory(4096)
    node.host.poke(address, headers)
    entry = data((key, address, len(headers)), (key, address + 64, 260))
    node.post_send(node.gsi, SendOpcode.SEND, entry)
    (sent,) = node.completions(node.gsi)
    assert (sent.send, sent.status) == (True, 0)
    request = query(CLASS_PORT_INFO, SaAttribute.CLASS_PORT_INFO)
    node.send_mad(node.gsi, SWITCH_LID, request, 1)
    assert len(node.mads(node.gsi)) == 1, "the queue pair goes on"


def question(method: int = Method.GET, key: int = 0) -> bytes:
    packet = smp(SmpAttribute.PORT_INFO, method=method)
    SMP.set(packet, "mkey", key)
    return bytes(packet)


@pytest.mark.parametrize(
    ("protect", "reads", "key_shown"), [(0, True, True), (1, True, False), (2, False, False)]
)
def test_a_key_protects(protect: int, reads: bool, key_shown: bool) -> None:
    info = PORT_INFO.pack(mkey=KEY, mkey_protect=protect)
    key = ManagementKey(info, lambda: 0.0)
    assert key.admits(question(Method.SET, KEY)) and key.admits(question(key=KEY))
    assert not key.admits(question(Method.SET, KEY + 1))
    assert key.admits(question()) == reads
    assert key.shows_key(question()) == key_shown and key.shows_key(question(key=KEY))
    assert PORT_INFO.get(info, "mkey_violations") == 1 + (not reads)


def test_a_port_without_a_key_is_free_to_all() -> None:
    assert ManagementKey(PORT_INFO.pack(), lambda: 0.0).admits(question(Method.SET, 5))


def test_the_lease_of_a_manager_that_died_runs_out() -> None:
    now = 0.0
    info = PORT_INFO.pack(mkey=KEY, mkey_protect=3, mkey_lease=10)
    key = ManagementKey(info, lambda: now)
    assert not key.admits(question())
    now = 9.9
    assert key.admits(question(key=KEY))  # it lives: the lease ends
    now = 19.8
    assert not key.admits(question())
    now = 29.9
    assert key.admits(question()) and not key.admits(question(Method.SET))


def test_a_guest_without_the_key_changes_nothing(subnet: Subnet) -> None:
    """But its own port, by the command that software has for that."""
    agent = subnet.fabric.switch.agent
    PORT_INFO.set(agent.info, "mkey", KEY)
    PORT_INFO.set(agent.info, "mkey_protect", 1)
    subnet.a.send_mad(subnet.a.smi, SWITCH_LID, disabling(2), 0)
    subnet.clock.run(1)
    assert subnet.b.agent.state == LINK_ACTIVE
    PORT_INFO.set(subnet.b.agent.info, "mkey", KEY)
    PORT_INFO.set(subnet.b.agent.info, "mkey_protect", 2)
    asked = bytes(smp(SmpAttribute.PORT_INFO, 1))
    assert subnet.b.try_command(Opcode.MAD_IFC, asked, 1, 0, out=True)[0] == Status.BAD_PKT
    assert subnet.b.try_command(Opcode.MAD_IFC, asked, 1, 1, out=True)[0] == Status.OK


class Refusal:
    """A listener that refuses what is set while `broken`."""

    def __init__(self) -> None:
        self.broken = True

    def __call__(self, agent: PortAgent, change: Change) -> None:
        if self.broken and change & Change.LID:
            raise BadField("a value that no port takes")


def test_a_port_that_cannot_be_served_keeps_no_other_from_service() -> None:
    """Not in the same sweep, and not in later ones."""
    subnet = Subnet(settle=False)
    refusal = Refusal()
    subnet.a.agent.listeners.append(refusal)
    subnet.clock.run(10)
    assert subnet.a.agent.state != LINK_ACTIVE
    assert subnet.b.agent.state == LINK_ACTIVE
    subnet.b.command(Opcode.CLOSE_PORT, modifier=1)
    subnet.b.command(Opcode.INIT_PORT, modifier=1)
    assert subnet.b.agent.state != LINK_ACTIVE
    refusal.broken = False
    subnet.clock.run(10)
    assert (subnet.a.agent.state, subnet.b.agent.state) == (LINK_ACTIVE, LINK_ACTIVE)


def test_a_sweep_that_fails_as_a_whole_is_not_the_last() -> None:
    subnet = Subnet(settle=False)
    refusal = Refusal()
    own = subnet.fabric.switch.agent
    own.listeners.append(refusal)
    PORT_INFO.set(own.info, "lid", 0)  # so that the manager sets it again
    with pytest.raises(BadField):
        subnet.clock.run(10)
    refusal.broken = False
    subnet.a.command(Opcode.CLOSE_PORT, modifier=1)
    subnet.a.command(Opcode.INIT_PORT, modifier=1)
    subnet.clock.run(10)
    assert (subnet.a.agent.state, subnet.b.agent.state) == (LINK_ACTIVE, LINK_ACTIVE)
