"""An HCA with two ports: each has its own addresses, tables, special queue pairs and network."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.ib.mad import MAD, NODE_INFO, SMP_DATA_OFFSET, MgmtClass, SmpAttribute
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, EventType
from bluebridge.device.layout.net.roce import ipv4_gid
from tests.models.rdma_node import Node, SendOpcode, TestQp, inline, remote

SECOND = 0xC3  # schedule queue of port 2, priority 0


class TwoPorts(Node):
    """A node whose second port is up, too."""

    def __init__(self, name: str, number: int, fabrics: list[LocalFabric]) -> None:
        super().__init__(name, number, fabrics[0], more_fabrics=fabrics[1:])
        self.fabrics = fabrics
        self.mac2 = bytes((2, 0, 0, 0, 11, number))
        self.gid2 = ipv4_gid(bytes((192, 168, 70, number)))
        self.open_port(2, self.mac2, self.gid2)

    def connect(self, qp: TestQp, peer: TwoPorts, target: TestQp) -> None:
        """RTS through the second ports."""
        self.to_rtr(
            qp, peer, target.qpn, pri_sched_queue=SECOND, pri_dmac=peer.mac2, pri_rgid=peer.gid2
        )
        self.to_rts(qp)


@pytest.fixture
def nodes() -> tuple[TwoPorts, TwoPorts]:
    """Two nodes, port 1 to port 1 and port 2 to port 2."""
    fabrics = [LocalFabric(), LocalFabric()]
    return TwoPorts("a", 1, fabrics), TwoPorts("b", 2, fabrics)


def test_both_ports_are_described(nodes: tuple[TwoPorts, TwoPorts]) -> None:
    a, _ = nodes
    assert QUERY_DEV_CAP.get(a.query(Opcode.QUERY_DEV_CAP), "num_ports") == 2
    macs = [QUERY_PORT.get(a.query(Opcode.QUERY_PORT, port), "mac") for port in (1, 2)]
    assert macs[1] - macs[0] == 0x100
    assert a.try_command(Opcode.QUERY_PORT, modifier=3, out=True)[0] == Status.BAD_INDEX
    request = MAD.pack(
        base_version=1,
        mgmt_class=MgmtClass.SUBN_LID,
        class_version=1,
        method=1,
        attr_id=SmpAttribute.NODE_INFO,
    )
    guids = set()
    for port in (1, 2):
        answer = a.query(Opcode.MAD_IFC, port, 3, bytes(request))
        info = NODE_INFO.unpack(answer[SMP_DATA_OFFSET:])
        assert (info["ports"], info["local_port"]) == (2, port)
        guids.add(info["port_guid"])
    assert len(guids) == 2


def test_events_and_special_queue_pairs_name_their_port(nodes: tuple[TwoPorts, TwoPorts]) -> None:
    a, _ = nodes
    events = a.events(EventType.PORT_CHANGE)
    assert [(event["subtype"], bytes(event["data"])[8] >> 4) for event in events] == [
        (PORT_ACTIVE, 1),
        (PORT_ACTIVE, 2),
    ]
    assert [port.tables.gsi_qpn for port in a.adapter.ports] == [514, 515]
    assert [port.tables.smi_qpn for port in a.adapter.ports] == [512, 513]


def test_traffic_of_the_second_port_stays_there(nodes: tuple[TwoPorts, TwoPorts]) -> None:
    a, b = nodes
    qa, qb = a.create_qp(0x240), b.create_qp(0x250)
    a.connect(qa, b, qb)
    b.connect(qb, a, qa)
    target, rkey = b.memory(4096)
    a.post_send(qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"port two"))
    assert [wc.status for wc in a.completions(qa)] == [0]
    assert b.host.peek(target, 8) == b"port two"
    assert [fabric.statistics.delivered for fabric in a.fabrics] == [0, 2]


def test_closing_one_port_leaves_the_other(nodes: tuple[TwoPorts, TwoPorts]) -> None:
    a, b = nodes
    a.command(Opcode.CLOSE_PORT, modifier=2)
    assert [port.link_up for port in a.adapter.ports] == [True, False]
    assert [port.link_up for port in b.adapter.ports] == [True, True]
