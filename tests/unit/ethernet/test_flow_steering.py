"""Flow steering: what rules match, which counts, defaults, sniffers, mirrors, what comes back."""

from __future__ import annotations

import pytest

from bluebridge.device.frames.rules import BY_ADDRESS, BY_TRANSPORT
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.steering import RuleHeader, RuleMode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.ethernet import PAUSE, PAUSE_ADDRESS
from tests.models.ethernet import (
    BROADCAST,
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
    RuleNode,
    ethernet,
    infiniband,
    ip_frame,
    ipv4,
    ports,
    to,
    vxlan,
)
from tests.models.rdma_node import inline


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


class EntriesNode(RuleNode):
    """A guest that chose rules, and groups of 2 GiB each."""

    def init_mailbox(self) -> bytearray:
        mailbox = super().init_mailbox()
        for name in ("log_mc_entry_size", "log_mc_hash_size", "log_mc_table_size"):
            INIT_HCA.set(mailbox, name, 31)
        return mailbox


def test_defaults_get_what_no_rule_matches(rings: Rings) -> None:
    node = rings.node
    node.attach(FIRST, to(rings.mac))
    groups = node.attach(SECOND, mode=RuleMode.MULTICAST_DEFAULT)
    assert rings.arrivals(rings.frame(GROUP)) == [SECOND]
    assert rings.arrivals(rings.frame(OTHER)) == NOBODY
    node.attach(THIRD, mode=RuleMode.ALL_DEFAULT)
    assert rings.arrivals(rings.frame(OTHER)) == [THIRD]
    assert rings.arrivals(rings.frame(GROUP)) == [SECOND, THIRD]
    assert rings.arrivals(rings.frame(rings.mac)) == [FIRST]
    node.detach(groups)
    assert rings.arrivals(rings.frame(GROUP)) == [THIRD]


@pytest.mark.parametrize(
    ("mode", "copied"),
    [
        (RuleMode.UNICAST_SNIFFER, [True, False]),
        (RuleMode.MULTICAST_SNIFFER, [False, True]),
        (RuleMode.MIRROR_RECEIVED, [True, True]),
    ],
)
def test_sniffers_get_copies(rings: Rings, mode: RuleMode, copied: list[bool]) -> None:
    rings.node.attach(FIRST, to(rings.mac))
    rings.node.attach(FIRST, to(GROUP))
    sniffer = rings.node.attach(SECOND, mode=mode)
    for mac, also in zip((rings.mac, GROUP), copied, strict=True):
        assert rings.arrivals(rings.frame(mac)) == [FIRST, *[SECOND] * also]
    assert rings.arrivals(rings.frame(OTHER)) == [SECOND] * copied[0]
    rings.node.detach(sniffer)
    assert rings.arrivals(rings.frame(rings.mac)) == [FIRST]


def test_a_mirror_gets_what_the_port_sends(rings: Rings) -> None:
    """Sent frames are counted as sent only."""
    mirror = rings.node.attach(SECOND, mode=RuleMode.MIRROR_SENT)
    rings.post_receives()
    frame = inline(rings.pair.a.mac + rings.mac + b"\x08\0")
    rings.node.post_send(rings.rings[0], SendOpcode.SEND, frame)
    assert SECOND in rings.arrived()
    assert sum(rings.node.port.counters.rx.frames) == 0
    rings.node.detach(mirror)
    rings.node.post_send(rings.rings[0], SendOpcode.SEND, frame)
    assert SECOND not in rings.arrived()


def test_a_frame_for_a_rule_of_its_own_port_comes_back(rings: Rings) -> None:
    """User space repeats the address in the control segment (`providers/mlx4/qp.c`)."""
    node = rings.node
    node.attach(SECOND, to(OTHER), priority=USER)
    frame = inline(OTHER + rings.mac + b"\x08\0")
    high, low = int.from_bytes(OTHER[:2], "big"), int.from_bytes(OTHER[2:], "big")
    rings.post_receives()
    node.post_send(rings.rings[0], SendOpcode.SEND, frame, flags=high << 16, immediate=low)
    assert SECOND in rings.arrived()
    node.post_send(rings.rings[1], SendOpcode.SEND, frame, flags=high << 16, immediate=low)
    received = [wc for wc in node.completions(rings.rings[1]) if not wc.raw[31] & 0x40]
    assert not received, "no queue pair gets its own frame without allow_loopback"
    node.attach(SECOND, to(OTHER), priority=USER | 0, allow_loopback=1)
    rings.post_receives()
    node.post_send(rings.rings[1], SendOpcode.SEND, frame, flags=high << 16, immediate=low)
    assert [wc for wc in node.completions(rings.rings[1]) if not wc.raw[31] & 0x40]


def test_a_frame_to_a_group_comes_back_and_goes_out(rings: Rings) -> None:
    node = rings.node
    node.attach(SECOND, to(GROUP), priority=USER)
    high, low = int.from_bytes(GROUP[:2], "big"), int.from_bytes(GROUP[2:], "big")
    rings.post_receives()
    frame = inline(GROUP + rings.mac + b"\x08\0")
    node.post_send(rings.rings[0], SendOpcode.SEND, frame, flags=high << 16, immediate=low)
    assert SECOND in rings.arrived()
    assert rings.pair.a.port.counters.filtered == 1
    assert sum(node.port.counters.tx.frames) == 1


def post_with_address(rings: Rings, mac: bytes, rest: bytes) -> None:
    """Send a frame whose control segment repeats its destination."""
    high, low = int.from_bytes(mac[:2], "big"), int.from_bytes(mac[2:], "big")
    frame = inline(mac + rings.mac + rest)
    rings.post_receives()
    rings.node.post_send(rings.rings[0], SendOpcode.SEND, frame, flags=high << 16, immediate=low)


def test_a_rule_without_the_whole_address_keeps_no_frame_from_the_wire(rings: Rings) -> None:
    """The peer, which has the address, gets the frame, and the port whose rule matches a copy."""
    mac = rings.pair.a.mac
    rings.node.attach(SECOND, ipv4(), priority=USER)
    post_with_address(rings, mac, bytes(ip_frame(b"data")[12:]))
    assert SECOND in rings.arrived()
    assert sum(rings.pair.a.port.counters.rx.frames) + rings.pair.a.port.counters.filtered == 1


def test_a_rule_for_the_whole_address_keeps_the_frame(rings: Rings) -> None:
    rings.node.attach(SECOND, to(rings.pair.a.mac), priority=USER)
    post_with_address(rings, rings.pair.a.mac, b"\x08\0")
    assert SECOND in rings.arrived()
    assert sum(rings.pair.a.port.counters.rx.frames) + rings.pair.a.port.counters.filtered == 0


def test_a_mirrored_pause_frame_pauses_nobody_but_the_peer(rings: Rings) -> None:
    node = rings.node
    node.attach(SECOND, mode=RuleMode.MIRROR_SENT)
    node.port.flow.obeys = True
    rings.post_receives()
    pause = PAUSE.pack(dmac=PAUSE_ADDRESS, ethertype=0x8808, opcode=1, quanta=1000)
    node.post_send(rings.rings[0], SendOpcode.SEND, inline(bytes(pause)))
    assert not node.port.flow.paused
    assert SECOND in rings.arrived()
    assert rings.pair.a.port.flow.rx.frames == 1


def test_a_rule_may_name_a_queue_pair_in_reset_and_drops_then(rings: Rings) -> None:
    """`ethtool -N ... action -1` (Linux `mlx4_en_create_drop_qp`)."""
    rings.node.attach(FIRST, to(rings.mac))
    rings.node.attach(0x200, to(rings.mac), ports(RuleHeader.UDP), priority=ETHTOOL)
    assert rings.arrivals(rings.packet()) == NOBODY
    assert rings.arrivals(rings.packet(6)) == [FIRST]


def test_reset_forgets_the_rules(rings: Rings) -> None:
    number = rings.node.attach(FIRST, to(rings.mac))
    rings.node.command(Opcode.CLOSE_HCA)
    status, _ = rings.node.try_command(Opcode.QP_FLOW_STEERING_DETACH, number)
    assert status == Status.BAD_SYS_STATE
    assert rings.node.tables.rules.find(int.from_bytes(rings.mac, "big")) is None


def test_rules_of_infiniband_cost_frames_nothing(rings: Rings) -> None:
    """Rules by address keep being looked up by the first six bytes alone."""
    table = rings.node.tables.rules
    rings.node.attach(FIRST, to(rings.mac))
    number = rings.node.attach(SECOND, infiniband(qpn=5, qpn_mask=0xFFFFFF), priority=USER)
    assert table.depth == BY_ADDRESS
    assert rings.arrivals(rings.packet()) == [FIRST]
    rings.node.attach(SECOND, ipv4(), priority=USER)
    assert table.depth == BY_TRANSPORT
    rings.node.detach(number)
    assert rings.arrivals(rings.packet()) == [SECOND]


@pytest.mark.parametrize("opcode", [Opcode.READ_MCG, Opcode.WRITE_MCG, Opcode.MGID_HASH])
def test_the_table_of_groups_is_not_there(opcode: Opcode) -> None:
    """Whatever sizes INIT_HCA gave: nothing of the guest's is kept or read by them."""
    node = Rings(EntriesNode).node
    raw = bytes(1024) if opcode is not Opcode.READ_MCG else 0
    status, _ = node.try_command(opcode, raw, 0, out=opcode is Opcode.READ_MCG)
    assert status == Status.BAD_SYS_STATE
