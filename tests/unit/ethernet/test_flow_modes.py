"""Flow steering besides rules that match: defaults, sniffers, mirrors, frames that come back."""

from __future__ import annotations

import pytest

from bluebridge.device.ethernet.rules import BY_ADDRESS, BY_TRANSPORT
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.steering import RuleHeader, RuleMode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.ethernet import PAUSE, PAUSE_ADDRESS
from tests.models.ethernet_pair import ip_frame
from tests.models.rdma_node import inline
from tests.models.steering_rules import (
    ETHTOOL,
    FIRST,
    GROUP,
    NOBODY,
    OTHER,
    SECOND,
    THIRD,
    USER,
    Rings,
    RuleNode,
    infiniband,
    ipv4,
    ports,
    to,
)


class EntriesNode(RuleNode):
    """A guest that chose rules, and groups of 2 GiB each."""

    def init_mailbox(self) -> bytearray:
        mailbox = super().init_mailbox()
        for name in ("log_mc_entry_size", "log_mc_hash_size", "log_mc_table_size"):
            INIT_HCA.set(mailbox, name, 31)
        return mailbox


@pytest.fixture
def rings() -> Rings:
    """Rings without a rule."""
    return Rings()


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
    assert rings.node.port.rules.find(int.from_bytes(rings.mac, "big")) is None


def test_rules_of_infiniband_cost_frames_nothing(rings: Rings) -> None:
    """Rules by address keep being looked up by the first six bytes alone."""
    table = rings.node.port.rules
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
