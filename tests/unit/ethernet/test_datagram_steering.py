"""Rules of flow steering for datagrams: groups, and UD queue pairs that rules give IPoIB to."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.steering import RuleHeader
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.pairs.costs import MESSAGE_COST
from tests.models.ethernet import USER, RuleNode, infiniband, ip_frame, ipv4, ports
from tests.models.ib_node import IbNode, Subnet, datagram_segment
from tests.models.rdma_node import inline
from tests.unit.ethernet.test_ipoib_offloads import ipoib
from tests.unit.fabric.test_ib_traffic import GROUP, GROUP_LID, QKEY, ud

FIRST, SECOND = 0x250, 0x251
FULL = b"\xff" * 16


class IbRuleNode(IbNode, RuleNode):
    """A guest on InfiniBand whose driver chose device-managed steering."""


class Link:
    """A sender, and two UD queue pairs of a guest with rules."""

    def __init__(self) -> None:
        self.subnet = Subnet(second=IbRuleNode)
        self.a = self.subnet.a
        self.qa = ud(self.a, 0x240)
        assert isinstance(self.subnet.b, IbRuleNode)
        self.b = self.subnet.b
        self.receivers = [ud(self.b, qpn) for qpn in (FIRST, SECOND)]
        self._target = self.b.memory(4096)

    def arrivals(self, payload: bytes = b"hello", qpn: int = FIRST) -> list[int]:
        """Numbers of the queue pairs that get a datagram to one of them."""
        return self._deliver(datagram_segment(self.b.agent.lid, qpn, QKEY) + inline(payload))

    def group_arrivals(self) -> list[int]:
        """Numbers of the queue pairs that get a datagram to the group."""
        segment = datagram_segment(GROUP_LID, 0xFFFFFF, QKEY, dgid=GROUP)
        return self._deliver(segment + inline(b"hello"))

    def _deliver(self, segments: bytes) -> list[int]:
        address, key = self._target
        for qp in self.receivers:
            self.b.post_recv(qp, [(key, address, 2048)])
        self.a.post_send(self.qa, SendOpcode.SEND, segments)
        return [qp.qpn for qp in self.receivers for _ in self.b.completions(qp)]


@pytest.fixture
def link() -> Link:
    return Link()


def only(qpn: int) -> bytes:
    """A header for datagrams to one queue pair."""
    return infiniband(qpn=qpn, qpn_mask=0xFFFFFF)


def set_range(node: RuleNode, first: int, last: int) -> Status:
    """FLOW_STEERING_IB_UC_QP_RANGE."""
    return node.try_command(Opcode.FLOW_STEERING_IB_UC_QP_RANGE, first << 32 | last)[0]


def test_groups_are_rules(link: Link) -> None:
    """Linux `mlx4_trans_to_dmfs_attach`: MLX4_PROT_IB_IPV6."""
    link.subnet.fabric.switch.node.multicast[GROUP_LID] = 0b100
    assert link.group_arrivals() == []
    header = infiniband(dgid=GROUP, dgid_mask=FULL)
    first = link.b.attach(FIRST, header)
    link.b.attach(SECOND, header)
    assert link.group_arrivals() == [FIRST, SECOND]
    link.b.detach(first)
    assert link.group_arrivals() == [SECOND]


def test_datagrams_need_a_rule_inside_of_the_range_only(link: Link) -> None:
    assert link.arrivals(qpn=FIRST) == [FIRST]
    assert set_range(link.b, FIRST, FIRST) == Status.OK
    assert link.arrivals(qpn=FIRST) == []
    assert link.arrivals(qpn=SECOND) == [SECOND]
    link.b.attach(FIRST, infiniband(qpn_mask=0xFFFFFF), only(FIRST))
    assert link.arrivals(qpn=FIRST) == [FIRST]


def test_packets_of_ipoib_are_told_apart(link: Link) -> None:
    """A user's rule takes a port away from the network interface (`mlx4_ib_steer_qp_reg`)."""
    set_range(link.b, FIRST, FIRST)
    link.b.attach(FIRST, only(FIRST))
    mine = infiniband(qpn_mask=0xFFFFFF), ipv4(b"\xc0\xa8\1\1"), ports(RuleHeader.UDP, 0, 2)
    number = link.b.attach(SECOND, *mine, priority=USER)
    packet = ipoib(ip_frame(b"x"))
    assert link.arrivals(packet) == [SECOND]
    assert link.arrivals(ipoib(ip_frame(b"", 6))) == [FIRST]
    assert link.arrivals(b"\x08") == [FIRST]
    link.b.detach(number)
    assert link.arrivals(packet) == [FIRST]


def test_copies_for_equal_rules_are_counted(link: Link) -> None:
    """They are the sender's cost: `FabricPort.receive`."""
    copies = []
    set_range(link.b, FIRST, SECOND)
    for qpn in (FIRST, SECOND):
        link.b.attach(qpn, only(FIRST))
        qp = link.a.adapter.qps.get(link.qa.qpn)
        assert qp is not None and qp.sq is not None
        before = qp.spent
        link.arrivals()
        copies.append(qp.spent - before)
    assert copies[1] - copies[0] == MESSAGE_COST, copies


@pytest.mark.parametrize(("first", "last"), [(2, 1), (1, 1 << 18), (1 << 18, 1 << 19)])
def test_ranges_that_are_none_are_refused(link: Link, first: int, last: int) -> None:
    assert set_range(link.b, first, last) == Status.BAD_PARAM
    assert link.arrivals() == [FIRST]


def test_the_mode_is_as_init_hca_said(link: Link) -> None:
    answer = link.b.query(Opcode.QUERY_HCA)
    assert INIT_HCA.get(answer, "flags") & 1 << 6
    assert INIT_HCA.get(answer, "log_rule_table_size") == 17
