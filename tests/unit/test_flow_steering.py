"""Device-managed flow steering of Ethernet frames: which ring gets what, by the rules attached."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.steering import RULE_CONTROL, RuleHeader, RuleMode
from tests.unit.rdma_node import Pair, SendOpcode, data, inline
from tests.unit.steering_rules import (
    ETHTOOL,
    NIC,
    USER,
    RuleNode,
    ethernet,
    infiniband,
    ipv4,
    ports,
    to,
    vxlan,
)
from tests.unit.test_ethernet import BROADCAST, ethernet_qp
from tests.unit.test_offload import ip_frame

GROUP = b"\x01\0\x5e\0\0\1"
OTHER = b"\x02\x77\0\0\0\1"
FIRST, SECOND, THIRD = 0x49, 0x4A, 0x4B
SOURCE, DESTINATION = b"\xc0\xa8\1\1", b"\xc0\xa8\1\2"
NOBODY: list[int] = []


class Rings:
    """A sender, and a receiver with three rings and rules."""

    def __init__(self, kind: type[RuleNode] = RuleNode) -> None:
        self.pair = Pair()
        self.node = kind("c", 3, self.pair.fabric)
        self.pair.b = self.node
        self.mac = self.node.mac
        self.sender = ethernet_qp(self.pair.a, 0x48)
        self.rings = [ethernet_qp(self.node, qpn) for qpn in (FIRST, SECOND, THIRD)]
        self._source = self.pair.a.memory(4096)
        self._target = self.node.memory(4096)

    def arrivals(self, frame: bytes) -> list[int]:
        """Numbers of the rings that get a frame of the sender, each as often as it does."""
        self.post_receives()
        address, key = self._source
        self.pair.a.host.poke(address, frame)
        self.pair.a.post_send(self.sender, SendOpcode.SEND, data((key, address, len(frame))))
        return self.arrived()

    def post_receives(self) -> None:
        """Room for a frame in each ring."""
        address, key = self._target
        for ring in self.rings:
            self.node.post_recv(ring, [(key, address, 2048)])

    def arrived(self) -> list[int]:
        """Numbers of the rings that completed receives."""
        return [ring.qpn for ring in self.rings for wc in self.node.completions(ring) if wc.length]

    def frame(self, mac: bytes, rest: bytes = b"\x08\0") -> bytes:
        """A frame of the sender."""
        return mac + self.pair.a.mac + rest

    def packet(self, protocol: int = 17) -> bytes:
        """UDP or TCP from port 1 to port 2 over IPv4, to the receiver."""
        return self.frame(self.mac, bytes(ip_frame(b"data", protocol)[12:]))


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


Headers = Callable[[Rings], tuple[bytes, ...]]

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
    assert rings.node.port.rules.find(int.from_bytes(rings.mac, "big")) is None


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
    assert [rings.arrivals(rings.frame(mac)) for mac in macs] == [
        NOBODY,
        *[[FIRST]] * 3,
        [SECOND],
    ]


def test_only_so_many_masks_fit() -> None:
    """Each different mask costs a look at every frame."""
    rings = Rings()
    for number in range(64):
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


def test_frames_that_end_early_find_their_rule(rings: Rings) -> None:
    """Whatever arrives, however short, is looked up and costs nothing but itself."""
    rings.node.attach(FIRST, to(rings.mac), vxlan(1), ipv4(), priority=USER)
    rings.node.attach(SECOND, to(rings.mac))
    for rest in (b"\x08\0", b"\x81\0", b"\x81\0\0\5\x08\0", b"\x08\0\x45" + b"\xff" * 30):
        assert rings.arrivals(rings.frame(rings.mac, rest)) == [SECOND]
