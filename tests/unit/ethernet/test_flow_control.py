"""Pause frames: frames that find no receive wait, senders wait, nobody waits for ever."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.capabilities import SET_PORT_GENERAL
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort
from bluebridge.device.layout.mlx4.ports import FLOW_STATS
from bluebridge.device.layout.net.ethernet import PAUSE, PAUSE_ADDRESS
from bluebridge.device.rdma.ports.flow_control import MAX_HELD, MOST_LOOKS, POLL_SECONDS
from tests.models.ethernet import ethernet_pair
from tests.models.rdma_node import Node, Pair, SendOpcode, inline

VALID = 7


def flow_control(node: Node, rx: bool, tx: bool) -> None:
    """SET_PORT as `ethtool -A` causes it."""
    general = SET_PORT_GENERAL.pack(flags=VALID, mtu=1526, pprx=rx << 7, pptx=tx << 7)
    node.set_port(SetPort.GENERAL, bytes(general))


@pytest.fixture
def pair() -> Pair:
    """Two guests with an Ethernet queue pair each, both for flow control."""
    pair = ethernet_pair()
    for node in (pair.a, pair.b):
        flow_control(node, True, True)
    return pair


def send(pair: Pair, number: int) -> None:
    """A frame of the first guest to the second."""
    frame = pair.b.mac + pair.a.mac + b"\x12\x34" + pack(">H", number)
    pair.post_send(SendOpcode.SEND, inline(frame))


def numbers(pair: Pair, target: int, count: int) -> list[int]:
    return [
        int.from_bytes(pair.b.host.peek(target + 64 * slot + 14, 2), "big") for slot in range(count)
    ]


def statistics(node: Node) -> dict[str, int | bytes]:
    """Return what ethtool -S shows of pauses."""
    return FLOW_STATS.unpack(node.query(Opcode.DUMP_ETH_STATS, 1 << 12 | 1))


def test_frames_wait_for_receives_and_senders_for_them(pair: Pair) -> None:
    send(pair, 1)
    assert pair.a.port.flow.paused
    for number in (2, 3):
        send(pair, number)
    assert len(pair.a.completions(pair.qa)) == 1
    target, key = pair.b.memory(4096)
    for slot in range(3):
        pair.post_recv([(key, target + 64 * slot, 64)])
    pair.b.host.run(POLL_SECONDS)
    assert not pair.a.port.flow.paused
    assert len(pair.a.completions(pair.qa)) == 2
    assert len(pair.b.completions(pair.qb)) == 3
    assert numbers(pair, target, 3) == [1, 2, 3]
    assert pair.b.port.counters.rx.dropped == 0
    sent, heard = statistics(pair.b), statistics(pair.a)
    assert (sent["tx_pause"], sent["tx_pause_transition"], sent["rx_pause"]) == (2, 1, 0)
    assert (heard["rx_pause"], heard["rx_pause_transition"], heard["tx_pause"]) == (2, 1, 0)


def test_a_ring_that_nobody_refills_is_given_up(pair: Pair) -> None:
    send(pair, 1)
    pair.b.host.run(POLL_SECONDS * (MOST_LOOKS + 1))
    assert not pair.a.port.flow.paused
    assert pair.b.port.counters.rx.dropped == 1
    send(pair, 2)  # lost at once now
    assert not pair.a.port.flow.paused
    assert pair.b.port.counters.rx.dropped == 2
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 64)])
    send(pair, 3)
    assert numbers(pair, target, 1) == [3]
    send(pair, 4)
    assert pair.a.port.flow.paused
    assert pair.b.host.timers == 1


def test_a_pause_ends_by_itself(pair: Pair) -> None:
    frame = PAUSE.pack(dmac=PAUSE_ADDRESS, ethertype=0x8808, opcode=1, quanta=1000)
    pair.a.port.flow.receive(bytes(frame))
    send(pair, 1)
    assert not pair.b.completions(pair.qb)
    pair.a.host.run(0.01)
    assert len(pair.a.completions(pair.qa)) == 1


@pytest.mark.parametrize(("rx", "tx"), [(False, False), (True, False)])
def test_without_flow_control_frames_are_lost(pair: Pair, rx: bool, tx: bool) -> None:
    flow_control(pair.b, rx, tx)
    send(pair, 1)
    assert not pair.a.port.flow.paused
    assert pair.b.port.counters.rx.dropped == 1


def test_a_sender_that_does_not_obey_fills_the_port_and_no_more(pair: Pair) -> None:
    flow_control(pair.a, False, False)
    for number in range(MAX_HELD + 10):
        send(pair, number & 0xFFFF)
        pair.a.host.run()
        pair.a.completions(pair.qa)
    assert pair.b.port.counters.rx.dropped == 10


def test_software_never_sees_mac_control(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 2048)])
    for body in (b"\0\1", b"\0\1\xff\xff", b"\1\1\xff\xff"):
        frame = PAUSE_ADDRESS + pair.a.mac + b"\x88\x08" + body
        pair.post_send(SendOpcode.SEND, inline(frame))
    assert not pair.b.completions(pair.qb)
    assert pair.b.port.flow.paused
    pair.b.port.reset()
    assert not pair.b.port.flow.paused
    assert pair.b.host.timers == 0


def test_frames_of_a_ring_that_goes_are_dropped(pair: Pair) -> None:
    send(pair, 1)
    pair.b.command(Opcode.TORST_QP, 0, pair.qb.qpn, 2)
    pair.b.host.run(POLL_SECONDS)
    assert not pair.a.port.flow.paused
    assert pair.b.host.timers == 0
