"""The table of steering rules against a plain list of them, and rules made of any bytes."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.ethernet.rules.rule import Rule
from bluebridge.device.ethernet.rules.table import Entry, RuleTable
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.steering import RULE_CONTROL, RuleHeader
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.mlx4.steering.rule_entry import rule_of
from tests.models.steering_rules import ethernet, infiniband, ipv4, ports, vxlan

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
