"""A tenant that takes another's addresses: it gets nothing and sends nothing by them."""

from __future__ import annotations

import re
from functools import partial

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.rules import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Response, Route, Train
from bluebridge.device.layout.mlx4.commands import SetPort
from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.device.server.control import ControlCommands
from tests.models.rdma_node import Node, Pair, SendOpcode, inline, remote

PATTERN = b"for b only"


class TrustingPair(Pair):
    """A pair on a fabric that believes every address."""

    def make_fabric(self) -> LocalFabric:
        """Trusting."""
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


def test_frames_from_the_address_of_another_are_dropped() -> None:
    fabric = LocalFabric()
    a, b = Node("a", 1, fabric), Node("b", 2, fabric)
    for source, spoofed in ((b.mac, 0), (b"\2\0\0\0\0\x99", 0), (a.mac, 1)):
        frame = b"\xff" * 6 + source + bytes(50)
        fabric.send(b.port, Frames(b"\xff" * 6, [Train([frame])]))
        assert fabric.statistics.spoofed == spoofed


@pytest.mark.parametrize("tagged", [False, True])
def test_a_connection_within_a_vlan_hears_nobody_outside(tagged: bool) -> None:
    pair = Pair()
    pair.b.set_port(SetPort.VLAN_TABLE, (1 << 31 | 5).to_bytes(4, "big").ljust(512, b"\0"))
    pair.connect(rtr={"pri_vlan_valid": int(tagged), "pri_vlan_index": 0})
    target, rkey = pair.b.memory(4096)
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"evil"))
    pair.run(0.3)
    assert pair.b.host.peek(target, 4) == (bytes(4) if tagged else b"evil")
