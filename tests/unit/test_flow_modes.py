"""Flow steering besides rules that match: defaults, sniffers, mirrors, frames that come back."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.steering import RuleHeader, RuleMode
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from tests.unit.rdma_node import inline
from tests.unit.steering_rings import FIRST, GROUP, NOBODY, OTHER, SECOND, THIRD, Rings
from tests.unit.steering_rules import ETHTOOL, USER, ports, to


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
