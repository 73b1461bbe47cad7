"""Rules of flow steering for Ethernet frames: what they match, and which of several counts."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.steering import RuleHeader
from tests.models.ethernet_pair import BROADCAST, ip_frame
from tests.models.steering_rules import (
    DESTINATION,
    ETHTOOL,
    FIRST,
    GROUP,
    NIC,
    NOBODY,
    OTHER,
    SECOND,
    SOURCE,
    THIRD,
    USER,
    Headers,
    Rings,
    ethernet,
    infiniband,
    ipv4,
    ports,
    to,
    vxlan,
)


@pytest.fixture
def rings() -> Rings:
    """Rings without a rule."""
    return Rings()


def test_capabilities_offer_both_modes_of_rules(rings: Rings) -> None:
    answer = rings.node.query(Opcode.QUERY_DEV_CAP)
    get = QUERY_DEV_CAP.get
    assert get(answer, "flow_steering") == get(answer, "steering_sniffers") == 1
    assert get(answer, "steers_datagrams") == 1
    assert get(answer, "max_qp_per_rule") == 24
    assert get(answer, "high_rate_count") == 256


def test_nothing_arrives_without_a_rule(rings: Rings) -> None:
    assert rings.arrivals(rings.frame(rings.mac)) == NOBODY
    assert rings.arrivals(rings.frame(BROADCAST)) == NOBODY


def test_addresses_name_their_rings_until_they_are_detached(rings: Rings) -> None:
    node = rings.node
    own = node.attach(FIRST, to(rings.mac))
    node.attach(SECOND, to(OTHER))
    node.attach(FIRST, to(GROUP))
    shared = node.attach(THIRD, to(GROUP))
    wanted = {rings.mac: [FIRST], OTHER: [SECOND], GROUP: [FIRST, THIRD], BROADCAST: NOBODY}
    assert {mac: rings.arrivals(rings.frame(mac)) for mac in wanted} == wanted
    node.detach(own)
    node.detach(shared)
    assert rings.arrivals(rings.frame(rings.mac)) == NOBODY
    assert rings.arrivals(rings.frame(GROUP)) == [FIRST]


MATCHING: dict[str, Headers] = {
    "source address": lambda r: (ethernet(smac=r.pair.a.mac, smac_mask=b"\xff" * 6),),
    "half an address": lambda r: (ethernet(dmac=r.mac, dmac_mask=b"\xff\xff\xff\0\0\0"),),
    "Ethertype": lambda r: (to(r.mac, match_type=1, ethertype=0x800),),
    "any IPv4": lambda r: (to(r.mac), ipv4()),
    "source": lambda r: (to(r.mac), ipv4(SOURCE)),
    "destination": lambda r: (to(r.mac), ipv4(b"", DESTINATION)),
    "network": lambda r: (to(r.mac), ipv4(b"\xc0\xa8\x01\xff", prefix=24)),
    "any UDP": lambda r: (to(r.mac), ipv4(), ports(RuleHeader.UDP)),
    "ports": lambda r: (to(r.mac), ipv4(SOURCE), ports(RuleHeader.UDP, 1, 2)),
    "range of ports": lambda r: (ports(RuleHeader.UDP, 0, 3, mask=0xFFFE),),
}
MISSING: dict[str, Headers] = {
    "source address": lambda r: (ethernet(smac=r.mac, smac_mask=b"\xff" * 6),),
    "Ethertype": lambda r: (to(r.mac, match_type=1, ethertype=0x86DD),),
    "tag": lambda r: (to(r.mac, vlan=5, vlan_mask=0xFFF),),
    "source": lambda r: (to(r.mac), ipv4(DESTINATION)),
    "TCP": lambda r: (to(r.mac), ipv4(), ports(RuleHeader.TCP)),
    "port": lambda r: (to(r.mac), ipv4(), ports(RuleHeader.UDP, 0, 3)),
    "VXLAN": lambda r: (to(r.mac), vxlan(0, 0)),
    "InfiniBand": lambda r: (infiniband(),),
}


@pytest.mark.parametrize("name", MATCHING)
def test_rules_take_what_they_match(rings: Rings, name: str) -> None:
    rings.node.attach(FIRST, to(rings.mac))
    rings.node.attach(SECOND, *MATCHING[name](rings), priority=ETHTOOL)
    assert rings.arrivals(rings.packet()) == [SECOND]


@pytest.mark.parametrize("name", MISSING)
def test_rules_leave_what_they_do_not_match(rings: Rings, name: str) -> None:
    rings.node.attach(FIRST, to(rings.mac))
    rings.node.attach(SECOND, *MISSING[name](rings), priority=ETHTOOL)
    assert rings.arrivals(rings.packet()) == [FIRST]


def test_a_fragment_has_no_ports(rings: Rings) -> None:
    rings.node.attach(FIRST, to(rings.mac), ipv4())
    rings.node.attach(SECOND, to(rings.mac), ports(RuleHeader.UDP), priority=USER)
    raw = bytearray(rings.packet())
    raw[20] = 0x20  # more fragments
    assert rings.arrivals(bytes(raw)) == [FIRST]


def test_tags_are_matched_and_need_no_filter(rings: Rings) -> None:
    """A rule that names a tag gets it past the VLAN filter; other rules do not."""
    node = rings.node
    node.attach(FIRST, to(rings.mac))
    tagged = rings.frame(rings.mac, b"\x81\0\x20\x05\x08\0")
    assert rings.arrivals(tagged) == [FIRST]
    node.command(Opcode.SET_VLAN_FLTR, bytes(512), 1)
    assert rings.arrivals(tagged) == NOBODY
    node.attach(SECOND, to(rings.mac, vlan=5, vlan_mask=0xFFF), priority=USER)
    assert rings.arrivals(tagged) == [SECOND]
    assert rings.arrivals(rings.frame(rings.mac, b"\x81\0\x20\x06\x08\0")) == NOBODY


def test_vxlan_rules_look_inside(rings: Rings) -> None:
    inner = rings.frame(OTHER, bytes(ip_frame(b"inner", 6)[12:]))
    outer = bytearray(ip_frame(b"\x08\0\0\0\0\0\x2a\0" + inner))
    outer[36:38] = (4789).to_bytes(2, "big")
    packet = rings.frame(rings.mac, bytes(outer[12:]))
    rings.node.attach(FIRST, to(rings.mac))
    assert rings.arrivals(packet) == [FIRST]
    inside = (to(OTHER), ipv4(SOURCE), ports(RuleHeader.TCP, 1))
    rings.node.attach(SECOND, to(rings.mac), vxlan(42), *inside, priority=USER)
    assert rings.arrivals(packet) == [SECOND]
    assert rings.arrivals(rings.packet()) == [FIRST]


def test_the_lowest_priority_decides(rings: Rings) -> None:
    node = rings.node
    node.attach(FIRST, to(rings.mac), priority=NIC)
    user = node.attach(SECOND, to(rings.mac), ipv4(), priority=USER | 7)
    narrow = node.attach(THIRD, to(rings.mac), ipv4(SOURCE), priority=USER | 8)
    assert rings.arrivals(rings.packet()) == [SECOND]
    node.detach(user)
    assert rings.arrivals(rings.packet()) == [THIRD]
    node.detach(narrow)
    assert rings.arrivals(rings.packet()) == [FIRST]


@pytest.mark.parametrize(("last_first", "winner"), [(0, FIRST), (1, SECOND)])
def test_of_one_priority_the_first_counts_or_the_last(
    rings: Rings, last_first: int, winner: int
) -> None:
    rings.node.attach(FIRST, to(rings.mac))
    rings.node.attach(SECOND, ipv4(), last_first=last_first)
    assert rings.arrivals(rings.packet()) == [winner]


def test_frames_that_end_early_find_their_rule(rings: Rings) -> None:
    """Whatever arrives, however short, is looked up and costs nothing but itself."""
    rings.node.attach(FIRST, to(rings.mac), vxlan(1), ipv4(), priority=USER)
    rings.node.attach(SECOND, to(rings.mac))
    for rest in (b"\x08\0", b"\x81\0", b"\x81\0\0\5\x08\0", b"\x08\0\x45" + b"\xff" * 30):
        assert rings.arrivals(rings.frame(rings.mac, rest)) == [SECOND]
