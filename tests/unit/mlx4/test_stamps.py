"""Time stamps of completions: when something left or arrived, not when its entry was written.

`ptp4l` computes the delay of the path from stamps of both ends.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.cqe import TS_HIGH_OFFSET, TS_LOW_OFFSET
from bluebridge.device.mlx4.settings.capabilities import CORE_CLOCK_MHZ
from bluebridge.device.rdma.ports.flow_control import POLL_SECONDS
from tests.models.ethernet import ethernet_pair, ethernet_qp, steer
from tests.models.rdma_node import Node, Pair, SendOpcode, Wc, data, inline
from tests.unit.ethernet.test_flow_control import flow_control, send
from tests.unit.ethernet.test_large_sends import ipv4_headers, send_large
from tests.unit.mlx4.test_named_faults import arm, of
from tests.unit.rdma.test_qp_datagram import address, ready


@pytest.fixture(autouse=True)
def stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completion queues have time stamps."""
    monkeypatch.setattr(Node, "stamps", 1)


def stamp(done: Wc) -> int:
    """The stamp of a completion."""
    high = int.from_bytes(done.raw[TS_HIGH_OFFSET : TS_HIGH_OFFSET + 4], "big")
    return high << 16 | int.from_bytes(done.raw[TS_LOW_OFFSET : TS_LOW_OFFSET + 2], "big")


def now(node: Node) -> int:
    """Return what the adapter's clock shows."""
    return int.from_bytes(node.hca.bar_read(0, bar0.CLOCK_OFFSET, 8), "big")


def ethernet() -> Pair:
    return ethernet_pair()


def datagrams() -> Pair:
    pair = Pair(ServiceType.UD, rq_shift=6)
    ready(pair.a, pair.qa)
    ready(pair.b, pair.qb)
    return pair


def unreliable() -> Pair:
    return Pair(ServiceType.UC).connect()


def hand_over(pair: Pair, kind: str) -> None:
    """Send one message of 28 bytes to the second guest, into memory that is large enough."""
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 2048)])
    front = address(pair.b, pair.qb.qpn) if kind == "datagrams" else b""
    frame = pair.b.mac + pair.a.mac + b"\x12\x34" + bytes(14)
    pair.post_send(SendOpcode.SEND, front + inline(frame))
    pair.run()


@pytest.mark.parametrize("make", [ethernet, datagrams, unreliable])
def test_what_awaits_no_answer_left_before_it_arrived(make: Callable[[], Pair]) -> None:
    pair = make()
    driver = pair.a
    assert QUERY_DEV_CAP.get(driver.query(Opcode.QUERY_DEV_CAP), "timestamps") == 1
    assert INIT_HCA.get(driver.query(Opcode.QUERY_HCA), "core_clock") == CORE_CLOCK_MHZ
    before = now(pair.a)
    hand_over(pair, make.__name__)
    (sent,), (received,) = pair.a.completions(pair.qa), pair.b.completions(pair.qb)
    assert sent.status == received.status == 0
    assert before <= stamp(sent) <= stamp(received) <= now(pair.b)


def test_a_local_operation_is_over_when_it_is_carried_out() -> None:
    """A NOP behind a send that awaits no answer has a stamp of its own."""
    pair = unreliable()
    hand_over(pair, "unreliable")
    (sent,) = pair.a.completions(pair.qa)
    between = now(pair.a)
    pair.post_send(SendOpcode.NOP, b"")
    pair.run()
    (done,) = pair.a.completions(pair.qa)
    assert stamp(sent) <= between <= stamp(done)


def test_a_reliable_send_is_over_when_its_answer_arrives() -> None:
    pair = Pair().connect()
    hand_over(pair, "reliable")
    (sent,), (received,) = pair.a.completions(pair.qa), pair.b.completions(pair.qb)
    assert stamp(received) <= stamp(sent) <= now(pair.a)


def test_the_last_frame_of_a_large_send_left_before_it_arrived() -> None:
    pair = Pair()
    pair.qa = ethernet_qp(pair.a, 0x48, log_sq_stride=3)
    pair.qb = ethernet_qp(pair.b, 0x49)
    for node, qp in ((pair.a, pair.qa), (pair.b, pair.qb)):
        steer(node, qp.qpn)
    source, lkey = pair.a.memory(8192)
    target, key = pair.b.memory(8192)
    for slot in range(4):
        pair.post_recv([(key, target + 2048 * slot, 2048)])
    send_large(pair.a, pair.qa, ipv4_headers(), 1448, data((lkey, source, 4 * 1448)))
    (sent,), frames = pair.a.completions(pair.qa), pair.b.completions(pair.qb)
    assert len(frames) == 4
    assert stamp(sent) <= stamp(frames[-1])


def test_a_frame_that_waited_for_a_receive_arrived_before_that() -> None:
    pair = ethernet_pair()
    for node in (pair.a, pair.b):
        flow_control(node, True, True)
    send(pair, 1)
    posted = now(pair.b)
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 64)])
    pair.b.host.run(POLL_SECONDS)
    (received,) = pair.b.completions(pair.qb)
    assert stamp(received) < posted


def test_an_entry_that_is_written_late_tells_when_its_request_was_over() -> None:
    pair = Pair().connect()
    arm(of(pair.a), f"cqe-late qpn={pair.qa.qpn} ms=500")
    hand_over(pair, "reliable")
    over = now(pair.a)
    pair.run(0.6)
    (sent,) = pair.a.completions(pair.qa)
    assert stamp(sent) < over
