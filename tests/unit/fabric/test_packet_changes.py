"""Rules that change packets and let them go on: congestion marks, rewritten header fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.ip import IPV4
from bluebridge.device.layout.net.roce import BthOpcode, ipv4_gid
from bluebridge.device.packets.carriers import carried
from bluebridge.device.packets.message import WireMessage
from bluebridge.device.packets.reader import Reason, Refused, WirePacket, read_packet
from bluebridge.device.packets.transport import TransportPacket, write_transport
from bluebridge.host_tools.analyzer.decode import decode
from tests.models.faulty_pair import parsed
from tests.unit.fabric.test_fabric import A, B
from tests.unit.fabric.test_fault_stage import Net

ECT, CE = 0b10, 0b11
DSCP = 0x68
GIDS = {
    "IPv4": (ipv4_gid(bytes((10, 0, 0, 1))), ipv4_gid(bytes((10, 0, 0, 2)))),
    "IPv6": (bytes((0xFE, 0x80, *bytes(13), 1)), bytes((0xFE, 0x80, *bytes(13), 2))),
}


def packet(kind: str = "IPv4", ecn: int = ECT, *, roce: int = 2, vlan: int = NO_VLAN) -> Frames:
    """A WRITE of five bytes from A to B, of the traffic class `DSCP` and `ecn`."""
    sgid, dgid = GIDS[kind]
    addresses = WireMessage(
        What.REQUEST, 0, b"", source_qpn=0x49, target_qpn=0x4A, source=A, destination=B,
        sgid=sgid, dgid=dgid, vlan=vlan, hop_limit=64, traffic_class=DSCP | ecn, form=roce,
    )  # fmt: skip
    transport = TransportPacket(BthOpcode.RC_WRITE_ONLY, 7, b"hello", va=8, rkey=9, length=5)
    frame = carried(addresses, write_transport(transport, 0x4A, 0xFFFF)).data
    return Frames(B, [Train([frame])])


def arrived(net: Net, place: int = 0) -> WirePacket:
    """Return what reached B, which an adapter takes: its lengths and check sums are right."""
    message = net.b.got[place]
    assert isinstance(message, Frames)
    return read_packet(bytes(message.trains[0].frames[0]))


@pytest.mark.parametrize("kind", GIDS)
@pytest.mark.parametrize("vlan", [NO_VLAN, 5])
def test_a_mark_changes_the_codepoint_and_nothing_else(net: Net, kind: str, vlan: int) -> None:
    rule = net.rule("a/1", "ecn")
    net.send(packet(kind, vlan=vlan))
    found = arrived(net)
    assert found.traffic_class == DSCP | CE
    assert bytes(found.payload) == b"hello"
    assert rule.taken == 1


@pytest.mark.parametrize(
    "passes",
    [packet(ecn=0), packet(ecn=CE), packet("IPv6", roce=1), Frames(B, [Train([b"x" * 60])])],
)
def test_what_cannot_be_marked_is_not_counted(net: Net, passes: Frames) -> None:
    """Neither by the rule nor by its `count`."""
    rule = net.rule("a/1", "ecn count=1")
    before = [bytes(frame) for frame in passes.trains[0].frames]
    net.send(passes)
    assert [bytes(frame) for frame in passes.trains[0].frames] == before
    net.send(packet())
    assert arrived(net, 1).traffic_class & CE == CE
    assert (rule.matched, rule.taken) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "words", "attribute", "value"),
    [
        ("IPv4", "ipv4.ttl=3", "hop_limit", 3),
        ("IPv6", "ipv6.hop_limit=3", "hop_limit", 3),
        ("IPv4", "udp.source_port=0xd000", "source_port", 0xD000),
        ("IPv6", "bth.pkey=0x1234", "pkey", 0x1234),
        ("IPv4", "bth.psn=0xabcdef", "psn", 0xABCDEF),
    ],
)
def test_a_rewritten_packet_has_right_check_sums(
    net: Net, kind: str, words: str, attribute: str, value: int
) -> None:
    net.rule("a/1", f"rewrite {words}")
    net.send(packet(kind))
    assert getattr(arrived(net), attribute) == value


def test_an_extended_header_is_rewritten_where_there_is_one(net: Net) -> None:
    rules = [net.rule("a/1", f"rewrite {words}") for words in ("reth.rkey=0x55", "aeth.msn=1")]
    net.send(packet())
    assert arrived(net).headers()["RETH"] == {"va": 8, "rkey": 0x55, "length": 5}
    assert [rule.taken for rule in rules] == [1, 0]


def test_what_a_rule_changes_goes_on_to_the_next(net: Net) -> None:
    """A later rule sees the changed packet, and one that decides is asked once only."""
    net.rule("a/1", "ecn")
    net.rule("a/1", "rewrite bth.dest_qpn=0x77")
    late = net.rule("a/1", "delay 5 target-qpn=0x77")
    never = net.rule("a/1", "drop")
    net.send(packet())
    assert net.b.got == []
    net.host.run(0.006)
    assert (arrived(net).target_qpn, arrived(net).traffic_class) == (0x77, DSCP | CE)
    assert (late.taken, never.matched) == (1, 0)


def test_a_corrupt_packet_is_told_by_its_icrc(net: Net) -> None:
    net.rule("a/1", "corrupt")
    net.send(packet())
    with pytest.raises(Refused) as refused:
        arrived(net)
    assert refused.value.reason is Reason.ICRC


def test_a_header_with_options_is_no_trouble(net: Net) -> None:
    """Frames are a guest's: 12 bytes of options make a header as long as a GRH, and go through."""
    frame = bytearray(packet().trains[0].frames[0])
    IPV4.set(frame, "header_words", 8, 14)
    net.rule("a/1", "ecn")
    net.rule("a/1", "rewrite bth.psn=1")
    for size in (len(frame), 60, 48, 30):
        net.send(Frames(B, [Train([bytes(frame[:26] + bytes(12) + frame[26:])[:size]])]))
    assert len(net.b.got) == 4


def test_the_log_says_what_was_changed(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    net = Net(log)
    net.rule("a/1", "ecn direction=out")
    net.send(packet())
    log.close()
    assert [decode(event) for event in LogReader(tmp_path)] == [
        "rule 1 marks (out): packet WRITE_ONLY > qpn=0x4a psn=0x7 bytes=5"
    ]


@pytest.mark.parametrize(
    "words",
    [
        "rewrite", "rewrite psn=1", "rewrite bth.colour=1", "rewrite ipv4.checksum=1",
        "rewrite ipv4.source=1", "rewrite bth.psn=0x1000000", "rewrite bth.psn=x",
    ],
)  # fmt: skip
def test_a_rewriting_that_makes_no_sense(words: str) -> None:
    with pytest.raises(ValueError, match=r"HEADER\.FIELD|choose from|from 0 to"):
        parsed(words)


@pytest.fixture
def net() -> Net:
    return Net()
