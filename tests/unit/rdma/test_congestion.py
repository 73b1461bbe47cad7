"""Congestion of packets: marks are reported, reports slow the sender, and it recovers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Told, Values
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.net.roce import BTH, BthOpcode
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.congestion import INTERVAL, LAB, Parameters, RateControl
from bluebridge.device.rdma.connected.packet_receiver import MOST_HELD
from bluebridge.device.rdma.connected.responder import PACKET_COST
from bluebridge.host_tools.analyzer.timeline.overview import paces
from bluebridge.host_tools.analyzer.timeline.trace_file import TraceFile
from bluebridge.host_tools.analyzer.timeline.tracks import Tracks
from tests.models.packet_pair import SIZE, STEP, PacketPair
from tests.models.rdma_node import SendOpcode

LINE = LAB.line_rate


@pytest.fixture
def pair() -> PacketPair:
    """Two connected guests."""
    return PacketPair()


def test_data_may_be_marked_and_nothing_else(pair: PacketPair) -> None:
    pair.write()
    pair.write(SendOpcode.RDMA_READ, 3000)
    codes = {(packet.start < packet.end, packet.traffic_class & 3) for packet in pair.packets}
    assert codes == {(True, 0b10), (False, 0)}


def test_without_a_mark_nothing_waits(pair: PacketPair) -> None:
    """All that the window lets go leaves at once, and no timer runs but that of the answer."""
    pair.write()
    assert pair.write() <= 4 * STEP
    assert pair.engine(pair.a).pacer is None
    assert (pair.a.host.timers, pair.b.host.timers) == (0, 0)
    assert pair.reports() == []


def test_a_marked_packet_is_reported_to_its_sender(pair: PacketPair) -> None:
    pair.rule("ecn count=1 direction=out")
    pair.write()
    (report,) = pair.reports()
    assert (report.target_qpn, report.psn, report.migrated) == (0x240, 0, False)
    assert report.traffic_class == 46 << 2
    assert BTH.get(report.frame, "becn", report.extended - BTH.size) == 1
    seen, told = pair.engine(pair.b).congestion, pair.engine(pair.a).congestion
    assert (seen.marks, seen.sent, told.received) == (1, 1, 1)


def test_reports_are_no_more_than_one_in_an_interval(pair: PacketPair) -> None:
    pair.rule("ecn")
    for _ in range(6):
        pair.write()
    assert pair.engine(pair.b).congestion.marks >= SIZE // 1024
    apart = [later - earlier for earlier, later in pairwise(pair.reported)]
    assert apart and min(apart) > INTERVAL - STEP


def test_marks_slow_the_sender_and_it_recovers(pair: PacketPair) -> None:
    """Three marks, an interval apart; then halfway back at each step, at last without a limit."""
    free = pair.write()
    pair.rule("ecn count=1 length=1024")
    for _ in range(3):
        pair.rule("ecn count=1 length=1024 direction=out")
        pair.write()
        pair.run(2 * INTERVAL)
    pacer = pair.engine(pair.a).pacer
    assert pacer is not None
    lowest, alpha = pacer.control.rate, pacer.control.alpha
    assert LINE / 4 < lowest < LINE * 0.75
    slow = pair.write()
    assert slow > 2 * free
    assert slow >= SIZE / (pacer.control.target / 8 * 1e6) - 0.004
    pair.run(LAB.step_period / 1e6)
    assert (pacer.control.rate > lowest, pacer.control.alpha < alpha) == (True, True)
    for _ in range(400):
        pair.run(0.1)
        pair.write()
        if pair.engine(pair.a).pacer is None:
            break
    assert pair.engine(pair.a).pacer is None
    assert pair.write() <= 4 * STEP
    told = pair.a.host.facts(Fact.RATE)
    assert told[0]["cause"] == "CNP" and told[-1]["rate"] == LINE * 1e6
    drawn = [mark.value for mark in paces(map(_event, told), Tracks(TraceFile(list)))]
    assert drawn[0] < drawn[-1] == LINE * 1e6 and len(drawn) == len(told)


def _event(values: Values) -> Event:
    """The event of the log for a rate of guest a."""
    told = Told(Fact.RATE, values)
    return Event(0, 0.0, "a", Kind.NOTE, 0, What.OTHER, 0, 0, 0, b"", told=told)


def test_no_time_out_runs_out_while_packets_wait(pair: PacketPair) -> None:
    """At a thousandth of the rate a message takes many time-outs: none of it is sent again."""
    engine = pair.engine(pair.a)
    pair.rule("ecn direction=out")
    pair.write(size=1 << 15)
    pacer = engine.pacer
    assert pacer is not None
    pair.rules.remove_all()
    pacer.control.rate = pacer.control.target = LINE / 1000
    pair.packets.clear()
    assert pair.write(size=1 << 17) > 0.3
    sent = Counter(packet.psn for packet in pair.packets if packet.opcode < BthOpcode.RC_ACK)
    assert set(sent.values()) == {1}


def test_what_waits_is_not_sent_after_going_back(pair: PacketPair) -> None:
    """A lost packet: those behind it that still wait leave once."""
    engine = pair.engine(pair.a)
    pair.rule("ecn direction=out count=1")
    pair.write(size=4096)
    pair.rules.remove_all()
    assert engine.pacer is not None
    engine.pacer.control.rate = engine.pacer.control.target = LINE / 100
    pair.packets.clear()
    pair.rule("drop direction=out psn=+5 count=1")
    pair.write(size=1 << 17)
    psns = Counter(packet.psn for packet in pair.packets if packet.start < packet.end)
    assert set(psns.values()) == {1, 2}, psns
    assert sum(times == 1 for times in psns.values()) > 30, psns


def test_answers_to_a_read_keep_the_rate(pair: PacketPair) -> None:
    free = pair.write(SendOpcode.RDMA_READ)
    pair.rule("ecn count=1 direction=in")
    pair.write(SendOpcode.RDMA_READ)
    engine = pair.engine(pair.b)
    assert engine.pacer is not None and pair.engine(pair.a).pacer is None
    engine.pacer.control.rate = engine.pacer.control.target = LINE / 20
    assert pair.write(SendOpcode.RDMA_READ) > max(0.6 * SIZE / (LINE / 20 / 8 * 1e6), 2 * free)


def test_a_reset_forgets_the_pace(pair: PacketPair) -> None:
    pair.rule("ecn direction=out")
    pair.write()
    pair.engine(pair.a).stop()
    pair.run(INTERVAL)
    assert pair.a.host.timers == 0


HARDWARE = Parameters()


def test_a_report_cuts_by_half_of_alpha() -> None:
    control = RateControl(HARDWARE)
    control.reported()
    assert control.rate == pytest.approx(40_000 * 0.75)
    assert control.target == 40_000
    assert control.alpha == pytest.approx(0.5 * 63 / 64 + 1 / 64)
    for _ in range(10_000):
        control.reported()
    assert control.rate == HARDWARE.floor
    assert control.alpha == pytest.approx(1)


def test_recovery_is_halfway_five_times_then_beyond() -> None:
    control = RateControl(HARDWARE)
    for _ in range(4):
        control.reported()
    target, rates = control.target, [control.rate]
    for _ in range(HARDWARE.recovery_steps - 1):
        control.step_period_over()
        rates.append(control.rate)
    halves = [target - (target - rates[0]) / 2**step for step in range(len(rates))]
    assert rates == pytest.approx(halves)
    control.step_period_over()
    assert control.target == pytest.approx(target + HARDWARE.increase)
    for _ in range(HARDWARE.recovery_steps):
        for _ in range(HARDWARE.step_bytes // 4096 + 1):
            control.sent(4096)
    before = control.target
    control.step_period_over()
    for _ in range(HARDWARE.step_bytes // 4096 + 1):
        control.sent(4096)
    assert control.target > before + HARDWARE.fast_increase


def test_alpha_goes_away() -> None:
    control = RateControl(HARDWARE)
    control.reported()
    for _ in range(500):
        control.alpha_period_over()
    assert control.alpha == 0


def test_requests_behind_a_read_wait_within_bounds(pair: PacketPair) -> None:
    """A peer that sends without a window fills no memory, and leaves nothing behind."""
    pair.rule("ecn count=1 direction=in")
    pair.write(SendOpcode.RDMA_READ)
    pacer = pair.engine(pair.b).pacer
    assert pacer is not None
    pacer.control.rate = pacer.control.target = LINE / 1000
    pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, pair.segments(SIZE))
    pair.run(STEP)
    qp, wire = pair.a.adapter.qps.get(pair.qa.qpn), pair.wires[1]
    assert qp is not None and wire.held == 0
    psn = qp.engine.next_psn
    for number in range(4000):
        packet = TransportPacket(
            BthOpcode.RC_WRITE_ONLY,
            psn + number,
            bytes(1024),
            va=pair.target,
            rkey=pair.rkey,
            length=1024,
        )
        pair.a.port.send_packets([ConnectedPacket(qp.route, pair.qb.qpn, packet, qp.qpn)])
    pair.run(STEP)
    assert MOST_HELD - 4096 < wire.held <= MOST_HELD
    assert wire.overrun == 4000 - wire.held // (1024 + PACKET_COST)
    pair.b.command(Opcode.TORST_QP, modifier=pair.qb.qpn, op_modifier=2)
    pair.run(STEP)
    assert wire.held == 0
