"""Rules of flow steering that are refused, with the status, and how many fit."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.capabilities import QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.steering import RULE_CONTROL, RuleHeader
from tests.models.rdma_node import Pair
from tests.models.steering_rings import FIRST, GROUP, NOBODY, OTHER, SECOND, THIRD, Headers, Rings
from tests.models.steering_rules import NIC, RuleNode, ethernet, ipv4, ports, to, vxlan


@pytest.fixture
def rings() -> Rings:
    """Rings without a rule."""
    return Rings()


BAD_RULES: dict[str, tuple[Status, Headers, dict[str, int]]] = {
    "mode": (Status.BAD_PARAM, lambda r: (), {"mode": 2}),
    "port": (Status.BAD_INDEX, lambda r: (to(r.mac),), {"port": 2}),
    "no port": (Status.BAD_INDEX, lambda r: (to(r.mac),), {"port": 0}),
    "queue beyond the table": (Status.BAD_INDEX, lambda r: (to(r.mac),), {"qpn": 1 << 18}),
    "queue with a peer": (Status.BAD_RESOURCE, lambda r: (to(r.mac),), {"qpn": 0x60}),
    "unknown header": (Status.BAD_PARAM, lambda r: (pack(">BBH", 1, 0, 0xE007),), {}),
    "IPv6": (Status.BAD_PARAM, lambda r: (pack(">BBH", 9, 0, 0xE003).ljust(36, b"\0"),), {}),
    "empty header": (Status.BAD_PARAM, lambda r: (bytes(4),), {}),
    "short header": (Status.BAD_PARAM, lambda r: (to(r.mac)[:40],), {}),
    "wrong size": (Status.BAD_PARAM, lambda r: (b"\x0b" + to(r.mac)[1:],), {}),
    "twice": (Status.BAD_PARAM, lambda r: (to(r.mac), to(r.mac)), {}),
    "order": (Status.BAD_PARAM, lambda r: (ipv4(), to(r.mac)), {}),
    "both transports": (
        Status.BAD_PARAM,
        lambda r: (ports(RuleHeader.TCP), ports(RuleHeader.UDP)),
        {},
    ),
    "VXLAN in VXLAN": (Status.BAD_PARAM, lambda r: (vxlan(1), vxlan(2)), {}),
}


@pytest.mark.parametrize("name", BAD_RULES)
def test_bad_rules_are_refused_and_nothing_changes(rings: Rings, name: str) -> None:
    rings.node.create_qp(0x60, ServiceType.RC)
    rings.node.attach(FIRST, to(rings.mac))
    status, headers, control = BAD_RULES[name]
    values = {"qpn": SECOND, "priority": 0, **control}
    assert rings.node.try_attach(values.pop("qpn"), *headers(rings), **values)[0] == status
    assert rings.arrivals(rings.frame(rings.mac)) == [FIRST]


@pytest.mark.parametrize("words", [0, 3, 1025, 0xFFFFFFFF])
def test_lengths_that_are_no_rules_are_refused(rings: Rings, words: int) -> None:
    raw = bytes(RULE_CONTROL.pack(port=1, qpn=FIRST, priority=NIC))
    status, _ = rings.node.try_command(Opcode.QP_FLOW_STEERING_ATTACH, raw, words)
    assert status == Status.BAD_PARAM


def test_an_exclusive_rule_is_shared_with_nobody(rings: Rings) -> None:
    node = rings.node
    node.attach(FIRST, to(GROUP), exclusive=1)
    assert node.try_attach(SECOND, to(GROUP))[0] == Status.RESOURCE_BUSY
    node.attach(SECOND, to(OTHER))
    assert node.try_attach(THIRD, to(OTHER), exclusive=1)[0] == Status.RESOURCE_BUSY
    assert rings.arrivals(rings.frame(GROUP)) == [FIRST]
    assert rings.arrivals(rings.frame(OTHER)) == [SECOND]


def test_only_so_many_queue_pairs_share_a_rule(rings: Rings) -> None:
    for qpn in range(FIRST, FIRST + 24):
        rings.node.attach(qpn, to(GROUP))
    assert rings.node.try_attach(0x200, to(GROUP))[0] == Status.EXCEED_LIM
    rings.node.attach(0x200, to(OTHER))


class SmallNode(RuleNode):
    """A driver that asked for four rules."""

    log_rules = 2


def test_the_table_holds_what_the_driver_asked_for() -> None:
    rings = Rings(SmallNode)
    macs = [bytes((2, 0, 0, 0, 0, number)) for number in range(5)]
    numbers = [rings.node.attach(FIRST, to(mac)) for mac in macs[:4]]
    assert rings.node.try_attach(FIRST, to(macs[4]))[0] == Status.EXCEED_LIM
    rings.node.detach(numbers[0])
    rings.node.attach(SECOND, to(macs[4]))
    assert [rings.arrivals(rings.frame(mac)) for mac in macs] == [NOBODY, *[[FIRST]] * 3, [SECOND]]


def test_only_so_many_masks_fit() -> None:
    """Each different mask costs a look at every frame."""
    rings = Rings()
    for number in range(32):
        rings.node.attach(FIRST, ethernet(dmac_mask=(1 << number % 48 | number).to_bytes(6, "big")))
    status, _ = rings.node.try_attach(SECOND, ipv4())
    assert status == Status.EXCEED_LIM


def test_an_unknown_rule_cannot_be_detached(rings: Rings) -> None:
    number = rings.node.attach(FIRST, to(rings.mac))
    for wrong in (0, number + 1, 1 << 63):
        status, _ = rings.node.try_command(Opcode.QP_FLOW_STEERING_DETACH, wrong)
        assert status == Status.BAD_INDEX
    assert rings.arrivals(rings.frame(rings.mac)) == [FIRST]


def test_without_the_mode_there_are_no_rules() -> None:
    """B0 and A0, which drivers choose by default."""
    pair = Pair()
    raw = bytes(RULE_CONTROL.pack(port=1, qpn=FIRST))
    for opcode, word, modifier in (
        (Opcode.QP_FLOW_STEERING_ATTACH, raw, 4),
        (Opcode.QP_FLOW_STEERING_DETACH, 1, 0),
        (Opcode.FLOW_STEERING_IB_UC_QP_RANGE, 1, 0),
    ):
        assert pair.a.try_command(opcode, word, modifier)[0] == Status.BAD_SYS_STATE


class StaticNode(RuleNode):
    """A driver that chose static A0 rules."""

    high_rate = 2


def test_static_rules_are_for_addresses_and_the_queues_of_the_range() -> None:
    rings = Rings(StaticNode)
    node = rings.node
    assert QUERY_PORT.get(node.query(Opcode.QUERY_PORT, 1), "high_rate_steering")
    node.attach(FIRST, to(rings.mac))
    assert node.try_attach(FIRST, to(rings.mac), ipv4())[0] == Status.BAD_SYS_STATE
    assert node.try_attach(0x400, to(OTHER))[0] == Status.BAD_SYS_STATE
    assert rings.arrivals(rings.packet()) == [FIRST]
