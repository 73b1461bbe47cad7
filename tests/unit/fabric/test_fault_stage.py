"""Fault rules of a network: which messages they take, who gets what when, and what they keep."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.fabric.faults.roce_packets import RocePacket
from bluebridge.device.fabric.faults.rule import (
    MOST_FLOWS,
    MOST_PACKETS,
    Passed,
    Place,
    Rule,
    Traffic,
)
from bluebridge.device.fabric.faults.stage import MOST_KEPT, MOST_KEPT_BYTES, MOST_RULES, FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import (
    Datagram,
    Frames,
    Message,
    Part,
    Request,
    Response,
    Route,
    Train,
)
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ib.mad import MAD, MAD_SIZE, MgmtClass, SmpAttribute
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.net.roce import BthOpcode, Op, Syndrome
from bluebridge.host_tools.analyzer.decode import decode
from tests.models.fake_host import FakeHost
from tests.models.faulty_pair import parsed
from tests.models.ib_node import Subnet, smp
from tests.unit.fabric.test_fabric import GROUP, A, B, C, Port


class Net:
    """Three ports with links `a/1`, `b/1`, `c/1`; `host` has the clock."""

    def __init__(self, events: EventLog | None = None) -> None:
        self.host = FakeHost()
        self.fabric = LocalFabric()
        self.a, self.b, self.c = (Port(self.fabric, mac) for mac in (A, B, C))
        self.rules = FaultRules(self.host.call_later, events or EventLog())
        for name, port in (("a", self.a), ("b", self.b), ("c", self.c)):
            self.rules.add_link(f"{name}/1", name, port, self.fabric)

    def rule(self, link: str, words: str) -> Rule:
        rule = parsed(words)
        self.rules.add(link, rule)
        return rule

    def send(self, message: Message) -> int:
        return self.fabric.send(self.a, message)


@pytest.fixture
def net() -> Net:
    return Net()


def route(target: bytes = B) -> Route:
    return Route(A, target, bytes(16), bytes(16))


def request(op: Op = Op.SEND, text: bytes = b"12345", target: bytes = B, psn: int = 0) -> Request:
    """A request of A's QP 0x40 to QP 0x50."""
    views = [memoryview(bytearray(text))]
    return Request(op, route(target), 0x40, 0x50, psn, 1, len(text), views, immediate=0x80000007)


def response(syndrome: int = Syndrome.ACK, *, read: bool = False) -> Response:
    return Response(route(), 0x50, 3, syndrome, read=read)


def datagram(text: bytes = b"12345", target: bytes = B) -> Datagram:
    """A datagram of QP 0x41 to QP 0x51."""
    return Datagram(route(target), 0x41, 0x51, 0, 0, bytes(40), text)


def mad(attribute: CmAttribute) -> Datagram:
    head = MAD.pack(base_version=1, mgmt_class=int(MgmtClass.CM), attr_id=int(attribute))
    return Datagram(route(), 1, 1, 0, 0, bytes(40), bytes(head).ljust(MAD_SIZE, b"\0"))


def frames(*texts: bytes) -> Frames:
    return Frames(B, [Train(list(texts))])


@pytest.mark.parametrize(
    ("words", "taken", "passes"),
    [
        ("kind=request", request(), response()),
        ("kind=request", request(), datagram()),
        ("kind=response,frames", frames(b"x"), request()),
        ("kind=datagram", datagram(), frames(b"x")),
        ("opcode=READ", request(Op.READ), request()),
        ("opcode=SEND_IMM,WRITE_IMM", request(Op.WRITE_IMM), request(Op.WRITE)),
        ("opcode=ACK", response(), response(Syndrome.NAK_PSN)),
        ("opcode=NAK", response(Syndrome.NAK_REMOTE_ACCESS), response(Syndrome.RNR_NAK | 5)),
        ("opcode=RNR_NAK", response(Syndrome.RNR_NAK | 5), response()),
        ("opcode=READ_RESPONSE", response(read=True), response()),
        ("qpn=0x50", request(), datagram()),
        ("qpn=0x40", request(), response()),
        ("source-qpn=65", datagram(), request()),
        ("target-qpn=0x50", response(), frames(b"x")),
        ("length=5", request(), request(text=b"1234")),
        ("length=6-", frames(b"12", b"3456"), datagram()),
        ("length=2-4", request(text=b"12"), request()),
        ("immediate=0x80000007", request(Op.SEND_IMM), request(Op.SEND)),
        ("immediate=0x80000000/0xf0000000", request(Op.WRITE_IMM), datagram()),
        ("payload=3132", request(), request(text=b"21")),
        ("payload=3132", frames(b"12", b"xx"), datagram(b"21")),
        ("cm=DREQ", mad(CmAttribute.DREQ), mad(CmAttribute.REQ)),
        ("cm=REQ,REP", mad(CmAttribute.REP), datagram(bytes(MAD_SIZE))),
    ],
)
def test_a_rule_takes_what_it_says(net: Net, words: str, taken: Message, passes: Message) -> None:
    rule = net.rule("a/1", f"drop {words}")
    for message in (passes, taken, passes):
        net.send(message)
    assert net.b.got == [passes, passes]
    assert (rule.matched, rule.taken) == (1, 1)


@pytest.mark.parametrize(
    ("link", "direction", "reaches"),
    [
        ("a/1", "out", 0), ("a/1", "both", 0), ("a/1", "in", 1), ("b/1", "in", 0),
        ("b/1", "both", 0), ("b/1", "out", 1), ("c/1", "both", 1),
    ],
)  # fmt: skip
def test_the_direction_of_a_rule(net: Net, link: str, direction: str, reaches: int) -> None:
    net.rule(link, f"drop direction={direction}")
    net.send(request())
    assert len(net.b.got) == reaches


def test_skip_count_and_the_next_rule(net: Net) -> None:
    first = net.rule("a/1", "drop skip=1 count=2")
    second = net.rule("a/1", "drop count=1")
    for psn in range(6):
        net.send(request(psn=psn))
    assert [each.psn for each in net.b.got if isinstance(each, Request)] == [3, 4, 5]
    assert (first.taken, second.taken) == (2, 1)


def test_a_rule_takes_what_those_before_it_let_pass(net: Net) -> None:
    net.rule("a/1", "drop kind=datagram")
    net.send(request(psn=0))
    net.rule("a/1", "drop kind=request count=1")
    net.send(request(psn=1))
    net.send(request(psn=2))
    assert [each.psn for each in net.b.got if isinstance(each, Request)] == [0, 2]


def test_probability_is_the_seeds(net: Net) -> None:
    def survivors(seed: int) -> list[int]:
        rule = net.rule("a/1", f"drop probability=0.5 seed={seed}")
        net.b.got.clear()
        for psn in range(200):
            net.send(request(psn=psn))
        net.rules.remove(rule.number)
        return [each.psn for each in net.b.got if isinstance(each, Request)]

    assert survivors(1) == survivors(1) != survivors(2)
    assert 60 < len(survivors(3)) < 140


def test_what_a_port_sends_to_itself_meets_no_rule(net: Net) -> None:
    net.rule("a/1", "drop")
    net.send(request(target=A))
    net.send(datagram(target=GROUP))
    assert len(net.a.got) == 2  # the group's own copy, too
    assert net.b.got == net.c.got == []


def test_only_the_link_of_a_group_member_is_faulty(net: Net) -> None:
    net.rule("b/1", "drop direction=in")
    net.send(datagram(target=GROUP))
    assert [len(port.got) for port in (net.a, net.b, net.c)] == [1, 0, 1]


def test_a_delayed_message_keeps_the_bytes_it_was_sent_with(net: Net) -> None:
    net.rule("a/1", "delay 5")
    first = request(text=b"first")
    first.work = 77
    net.send(first)
    first.payload[0][:] = b"later"
    net.host.run(0.004)
    assert net.b.got == []
    net.host.run(0.002)
    (got,) = net.b.got
    assert isinstance(got, Request)
    assert (bytes(got.payload[0]), got.work) == (b"first", 77)


def test_delayed_messages_keep_their_order_and_others_overtake(net: Net) -> None:
    net.rule("a/1", "delay 5 kind=request")
    for psn in range(3):
        net.send(request(psn=psn))
    net.send(response())
    net.host.run(0.01)
    assert [each.psn for each in net.b.got if not isinstance(each, Frames)] == [3, 0, 1, 2]


def test_a_part_stays_what_it_was(net: Net) -> None:
    net.rule("a/1", "delay 1 length=100")
    part = Part(5, 100, 1, False, False)
    message = request()
    message.part = part
    net.send(message)
    net.host.run(0.002)
    (got,) = net.b.got
    assert isinstance(got, Request)
    assert (got.part, got.length) == (part, 5)


def test_duplicates_come_at_once_or_later(net: Net) -> None:
    rule = net.rule("a/1", "duplicate")
    net.send(request())
    assert len(net.b.got) == 2
    net.rules.remove(rule.number)
    net.rule("a/1", "duplicate 3")
    net.send(frames(b"one"))
    assert len(net.b.got) == 3
    net.host.run(0.005)
    assert net.b.got[2:] == [frames(b"one"), frames(b"one")]


def test_copies_are_the_senders_cost(net: Net) -> None:
    assert net.send(datagram()) == 2  # what the test's port says of itself
    rule = net.rule("a/1", "duplicate")
    assert net.send(datagram()) == 5
    net.rules.remove(rule.number)
    net.rule("a/1", "delay 1")
    assert net.send(datagram()) == 1


def test_a_slow_link_lets_one_message_arrive_after_the_other(net: Net) -> None:
    """Each takes its bits over the rate: 1,250 bytes at 1 Mb/s are 10 ms. Then it begins anew."""
    rule = net.rule("a/1", "rate 1")
    for psn in range(3):
        net.send(request(psn=psn, text=bytes(1250)))
    arrived = []
    for _ in range(3):
        arrived.append(len(net.b.got))
        net.host.run(0.0105)
    assert [*arrived, len(net.b.got)] == [0, 1, 2, 3]
    for psn in range(2):
        net.send(request(psn=psn, text=bytes(1250)))
    net.rules.remove(rule.number)
    net.host.run(0.001)
    assert [each.psn for each in net.b.got if isinstance(each, Request)] == [0, 1, 2, 0, 1]


def test_held_messages_come_when_they_are_released(net: Net) -> None:
    rule = net.rule("b/1", "hold direction=in")
    for psn in range(3):
        net.send(request(psn=psn))
    net.host.run(10)
    assert net.b.got == []
    assert len(rule.kept) == 3
    net.rules.release(rule.number)
    net.host.run()
    assert [each.psn for each in net.b.got if isinstance(each, Request)] == [0, 1, 2]
    net.send(request())
    net.host.run()
    assert len(net.b.got) == 3  # the rule is still in force
    net.rules.remove(rule.number)
    net.host.run()
    assert len(net.b.got) == 4


def test_a_delayed_message_passes_the_rules_of_its_receiver_later(net: Net) -> None:
    net.rule("a/1", "delay 5 direction=out")
    net.send(request())
    rule = net.rule("b/1", "drop direction=in")
    net.host.run(0.01)
    assert net.b.got == []
    assert rule.taken == 1


@pytest.mark.parametrize("gone", ["down", "detached"])
def test_what_waits_for_a_port_that_is_gone_is_lost(net: Net, gone: str) -> None:
    net.rule("a/1", "delay 5")
    net.send(request())
    if gone == "down":
        net.b.announce(up=False)
    else:
        net.fabric.detach(net.b)
    net.host.run(0.01)
    assert net.b.got == []


def test_what_may_wait_on_a_link_is_bounded(net: Net) -> None:
    rule = net.rule("a/1", "hold")
    for _ in range(MOST_KEPT + 10):
        net.send(datagram(b""))
    assert (len(rule.kept), rule.lost) == (MOST_KEPT, 10)
    net.rules.remove_all("a/1")
    net.host.run()
    assert len(net.b.got) == MOST_KEPT
    rule = net.rule("a/1", "hold")
    large = datagram(bytes(MOST_KEPT_BYTES // 4))
    for _ in range(5):
        net.send(large)
    assert (len(rule.kept), rule.lost) == (3, 2)


def test_the_number_of_rules_is_bounded(net: Net) -> None:
    for _ in range(MOST_RULES):
        net.rule("a/1", "drop")
    with pytest.raises(ValueError, match="rules already"):
        net.rule("a/1", "drop")
    net.rules.remove_all()
    assert net.fabric.stage is None


@pytest.mark.parametrize(
    "words",
    ["delay", "delay x", "delay -1", "delay 1e9", "delay nan", "drop 5", "drop kind", "drop kind=",
     "drop kind=smoke", "drop opcode=FLY", "drop cm=CALL", "drop qpn=-1", "drop qpn=ten",
     "drop length=a-b", "drop length=5-3", "drop payload=xyz", "drop immediate=1/x",
     "drop probability=2", "drop probability=nan", "drop probability=p", "drop count=1 count=2",
     "drop direction=up", "duplicate x", "hold 5", "rate", "rate 0", "rate nan", "rate fast"],
)  # fmt: skip
def test_nonsense_is_no_rule(words: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(words)


def test_the_bus_log_says_what_became_of_each_message(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    net = Net(log)
    net.rule("a/1", "drop cm=DREQ")
    net.rule("b/1", "delay 1 direction=in kind=request")
    net.rule("a/1", "duplicate kind=frames")
    for message in (mad(CmAttribute.DREQ), request(), frames(b"12", b"3")):
        net.send(message)
    net.host.run(0.01)
    log.close()
    events: list[Event] = list(LogReader(tmp_path))
    assert all(event.kind == Kind.FAULT for event in events)
    assert [(event.device, decode(event)) for event in events] == [
        ("a", "rule 1 drops (out): MAD CM DREQ qpn=0x1 > qpn=0x1 psn=0x0 bytes=256"),
        ("b", "rule 2 delays (in): request SEND qpn=0x40 > qpn=0x50 psn=0x0 bytes=5"),
        ("a", "rule 3 duplicates (out): frames to 02:00:00:00:00:02 count=2 bytes=3"),
        ("b", "rule 2 delivers (in): request SEND qpn=0x40 > qpn=0x50 psn=0x0 bytes=5"),
    ]
    assert [event.values["rule"] for event in events] == [1, 2, 3, 2]


def test_messages_wait_on_an_infiniband_subnet_too() -> None:
    subnet = Subnet()
    rules = FaultRules(subnet.clock.call_later, EventLog())
    rules.add_link("a/1", "a", subnet.a.port, subnet.fabric)
    query = smp(SmpAttribute.NODE_INFO)
    rules.add("a/1", parsed("delay 5 direction=out"))
    subnet.a.send_mad(subnet.a.smi, subnet.fabric.switch.agent.lid, query, 0)
    subnet.clock.run(0.004)
    assert subnet.a.mads(subnet.a.smi) == []
    subnet.clock.run(0.002)
    assert len(subnet.a.mads(subnet.a.smi)) == 1


def passing(traffic: Traffic, number: int, psn: int) -> Place:
    """The place of a message of one packet to a queue pair."""
    packet = RocePacket(b"", 0, 0, BthOpcode.RC_WRITE_ONLY, number, psn, 0, 0)
    place = traffic.place(packet, "in")
    assert place is not None
    return place


def test_what_is_remembered_of_packets_is_bounded_over_all_links_and_queue_pairs() -> None:
    """The oldest is forgotten: it passes for the first time again."""
    passed = Passed()
    one, other = Traffic(passed), Traffic(passed)
    for psn in range(2):
        assert passing(one, 7, psn).transmission == 1
        assert passing(one, 7, psn).transmission == 2
    for number in range(MOST_PACKETS - 1):
        passing(other, 1 + number % 500, number)
    assert passing(one, 7, 1).transmission == 3
    assert passing(one, 7, 0).transmission == 1
    assert passing(other, 1 + number % 500, number).transmission == 2


def test_the_oldest_queue_pair_of_a_link_is_forgotten_and_the_next_has_the_next_number() -> None:
    traffic = Traffic(Passed())
    assert [passing(traffic, number, 0).qp for number in range(MOST_FLOWS)][-1] == MOST_FLOWS
    assert passing(traffic, 0, 1).qp == 1, "it spoke last"
    assert passing(traffic, MOST_FLOWS, 0).qp == MOST_FLOWS + 1
    assert (passing(traffic, 0, 2).qp, passing(traffic, 1, 2).qp) == (1, MOST_FLOWS + 2)


def test_what_is_remembered_of_packets_takes_less_than_64_mib() -> None:
    count = 4096
    traffic = Traffic(Passed())
    tracemalloc.start()
    try:
        for psn in range(count):
            passing(traffic, 1 + psn % 500, 0x800000 + psn)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count * MOST_PACKETS < 64 << 20
