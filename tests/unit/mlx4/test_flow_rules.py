"""Rules of flow steering: the table against a plain list of them, and those that are refused."""

from __future__ import annotations

from struct import pack
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.frames.rules import Entry, Rule, RuleTable
from bluebridge.device.layout.mlx4.capabilities import QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.steering import RULE_CONTROL, RuleHeader
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.mlx4.steering.rules import rule_of
from tests.models.ethernet import (
    FIRST,
    GROUP,
    NIC,
    NOBODY,
    OTHER,
    SECOND,
    THIRD,
    Headers,
    Rings,
    RuleNode,
    ethernet,
    infiniband,
    ipv4,
    ports,
    to,
    vxlan,
)
from tests.models.rdma_node import Pair

HEADERS = (ethernet(), infiniband(), ipv4(), ports(RuleHeader.TCP), ports(RuleHeader.UDP), vxlan(0))
MASKS = (0, 1, 2, 3, 1 << 40, 1 << 40 | 1)
"""Of addresses: few bits, so that rules overlap."""


class Attached(NamedTuple):
    """A rule that was attached as number `number`."""

    number: int
    rule: Rule
    entry: Entry | None


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A regular rule for destination addresses."""
    mask = draw(st.sampled_from(MASKS))
    address = draw(st.sampled_from(MASKS))
    control = RULE_CONTROL.pack(
        priority=draw(st.integers(0, 2)),
        last_first=draw(st.integers(0, 1)),
        qpn=draw(st.integers(1, 4)),
    )
    header = ethernet(dmac=address.to_bytes(6, "big"), dmac_mask=mask.to_bytes(6, "big"))
    return rule_of(bytes(control) + header)


def expected(attached: list[Attached], number: int) -> set[int]:
    """Queue pairs that a packet is for: those of the first rule that matches, and of its equals.

    An entry's place is that of the first rule that made it.
    """
    places: dict[tuple[int, int, int], tuple[int, int]] = {}
    for each in attached:
        rule = each.rule
        key = rule.priority, rule.mask, rule.value
        assert each.entry is not None
        places.setdefault(key, (rule.priority, each.entry.order))
    matching = [key for key in places if number & key[1] == key[2]]
    if not matching:
        return set()
    best = min(matching, key=lambda key: places[key])
    return {
        each.rule.qpn
        for each in attached
        if (each.rule.priority, each.rule.mask, each.rule.value) == best
    }


@given(
    st.lists(st.tuples(rules(), st.integers(0, 3)), max_size=30), st.lists(st.sampled_from(MASKS))
)
def test_the_table_finds_what_a_list_of_rules_says(
    changes: list[tuple[Rule, int]], packets: list[int]
) -> None:
    table, attached = RuleTable(), list[Attached]()
    for count, (rule, action) in enumerate(changes):
        if action == 0 and attached:  # detach one of those there are
            gone = attached.pop(count % len(attached))
            table.remove(gone.rule, gone.entry)
        else:
            attached.append(Attached(count, rule, table.add(rule)))
        for packet in packets:
            found = table.find(packet)
            targets = {qpn for qpn, _ in found.targets} if found is not None else set()
            assert targets == expected(attached, packet)
    for each in attached:
        table.remove(each.rule, each.entry)
    assert all(table.find(packet) is None for packet in packets)


def test_equal_rules_keep_the_place_of_the_first() -> None:
    """By the order of attaching among rules of one priority that overlap."""
    table = RuleTable()
    control = RULE_CONTROL.pack(qpn=1)
    first = table.add(rule_of(bytes(control) + ethernet(dmac_mask=(1).to_bytes(6, "big"))))
    second = table.add(rule_of(bytes(control) + ethernet(dmac_mask=(2).to_bytes(6, "big"))))
    late = bytes(RULE_CONTROL.pack(qpn=2, last_first=1))
    third = table.add(rule_of(late + ethernet(dmac_mask=(4).to_bytes(6, "big"))))
    assert first is not None and second is not None and third is not None
    assert third.order < first.order < second.order
    assert table.find(0) is third


@st.composite
def mailboxes(draw: st.DrawFn) -> bytes:
    """A control segment and headers, some of them damaged, or any bytes."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=120))
    raw = bytearray(RULE_CONTROL.pack(mode=draw(st.integers(0, 8)), port=1))
    for header in draw(st.lists(st.sampled_from(HEADERS), max_size=5)):
        raw += header
    for _ in range(draw(st.integers(0, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@given(mailboxes())
def test_any_bytes_are_a_rule_or_a_bad_parameter(raw: bytes) -> None:
    try:
        rule = rule_of(raw)
    except CommandError as error:
        assert error.status == Status.BAD_PARAM
    else:
        assert not rule.value & ~rule.mask
        table = RuleTable()
        table.remove(rule, table.add(rule))


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
