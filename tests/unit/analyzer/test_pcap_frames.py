"""Messages in a log become the packets a wire would have carried: read back independently."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Message, Part, Request, Response
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.ip import source_port
from bluebridge.device.layout.net.roce import PSN_MASK, Op, Syndrome
from bluebridge.device.packets.carriers import frames_of
from bluebridge.device.packets.message import PacketError, WireMessage
from bluebridge.device.packets.reader import read_packet
from bluebridge.host_tools.analyzer.pcap.export import export
from tests.models.capture_reader import ETHERNET, Captured, Parsed, parse
from tests.models.capture_traffic import (
    ADDRESS,
    LOCAL_A,
    LOCAL_B,
    MAC_A,
    MAC_B,
    MTU,
    PSN,
    QPN_A,
    QPN_B,
    RKEY,
    Cable,
    arp,
    content,
    datagrams,
    packets_of,
    request,
    requests,
    routes,
    views,
    write_log,
)

WAYS = sorted(routes())


def logged(folder: Path, messages: Sequence[Message], capture: int = 8192) -> list[WireMessage]:
    """Return what the log says of `messages`."""
    write_log(folder, messages, capture=capture)
    return [read_message(event) for event in LogReader(folder) if event.kind is Kind.WIRE]


def packets(message: WireMessage, roce: int | None = None) -> list[Parsed]:
    """The packets of a message, every one checked."""
    found = []
    for frame in frames_of(message, roce):
        data = frame.data
        if frame.link != ETHERNET:
            stamp = (frame.length, len(data))
            header = bytes(8) + b"\x15\x04" + (16 + stamp[1]).to_bytes(2, "big")
            data = header + bytes(2) + stamp[0].to_bytes(2, "big") + data
        link = Captured("a", frame.link, 0, data, frame.length + len(data) - len(frame.data))
        packet = parse(link)
        assert packet is not None
        found.append(packet)
    return found


def test_a_source_port_that_the_sender_chose_is_in_log_and_packets(tmp_path: Path) -> None:
    own, other = (routes()["v2-ipv4"] for _ in range(2))
    own.udp_port = 0xC123
    sent = [request(route, Op.SEND, 5, srqn=9) for route in (own, other)]
    chosen, computed = logged(tmp_path, sent)
    assert chosen.payload == computed.payload == content(5)
    assert chosen.srqn == computed.srqn == 9
    ports = [read_packet(frame.data).source_port for each in (chosen, computed)
             for frame in frames_of(each)]  # fmt: skip
    assert ports == [0xC123, source_port(QPN_A, QPN_B)]


@pytest.mark.parametrize("way", WAYS)
def test_every_operation_on_every_way(tmp_path: Path, way: str) -> None:
    """Each packet is consistent in itself, and together they carry the message."""
    sent = [*requests(routes()[way]), *datagrams(routes()[way])]
    recorded = logged(tmp_path, sent)
    assert len(recorded) == len(sent)
    for message, record in zip(sent, recorded, strict=True):
        cut = packets(record)
        data = b"".join(packet.payload for packet in cut)
        assert {packet.network for packet in cut} == {"v1" if way.startswith("v1") else way}
        if isinstance(message, Request | Response):
            assert data == b"".join(message.payload)
        assert isinstance(message, Datagram) is (cut[0].opcode >> 5 == 3)
        assert all(packet.whole for packet in cut)


def in_parts(way: str, op: Op) -> list[Message]:
    """A message of five packets that moves in parts of two, with the answers to them."""
    route, found, total = routes()[way], list[Message](), 4 * MTU + 3
    for offset in range(0, total, 2 * MTU):
        one = request(route, op, min(2 * MTU, total - offset))
        one.psn, one.remote_address = PSN + offset // MTU & PSN_MASK, ADDRESS + offset
        rest = packets_of(total - offset)
        one.part = Part(offset, total, rest, begins=not offset, last=rest <= 2)
        answer = Response(route, QPN_A, one.psn, 0, 1, packets=one.packets, part=one.part)
        if op is Op.READ:
            answer.read, answer.payload = True, views(content(one.length))
        found += [one, answer]
    return found


@pytest.mark.parametrize("op", [Op.SEND_IMM, Op.WRITE, Op.WRITE_IMM, Op.READ])
def test_a_message_in_parts_is_one_message_on_the_wire(tmp_path: Path, op: Op) -> None:
    asked, answered = logged(tmp_path, in_parts("v1", op))
    numbers = [PSN + index & PSN_MASK for index in range(5)]
    data, ack = (answered, asked) if op is Op.READ else (asked, answered)
    cut = packets(data)
    assert [packet.psn for packet in cut] == numbers
    assert data.length == 4 * MTU + 3
    (only,) = packets(ack)
    assert only.psn == numbers[0 if op is Op.READ else -1]


def test_addresses(tmp_path: Path) -> None:
    ways = routes()
    message = [request(ways[way], Op.SEND, 4) for way in WAYS]
    found = {
        way: packets(record)[0] for way, record in zip(WAYS, logged(tmp_path, message), strict=True)
    }
    for way, packet in found.items():
        route = ways[way]
        if way.startswith("ib"):
            lrh = packet.headers["lrh"]
            assert (lrh[1] >> 4, lrh[2:4], lrh[6:8]) == (route.service_level, b"\0\2", b"\0\1")
        else:
            assert (packet.smac, packet.dmac) == (MAC_A, MAC_B)
        if way != "ib":
            assert packet.gids == route.sgid + route.dgid
        assert packet.pkey == route.pkey
        assert packet.target == QPN_B
    assert found["v1-vlan"].vlan == 3 << 13 | 100
    assert found["v1"].vlan is None
    assert found["v1"].headers["grh"][:4] == bytes.fromhex("62012345")
    assert found["v2-ipv4"].headers["ip"][1] == 0x20
    assert found["v2-ipv4"].headers["ip"][8] == 63


def opcodes(cut: list[Parsed]) -> list[int]:
    """Operation of each packet, service included."""
    return [packet.opcode for packet in cut]


def test_a_write_of_three_packets(tmp_path: Path) -> None:
    """The address comes first, the immediate value last; sequence numbers wrap."""
    route = routes()["v1"]
    record = logged(tmp_path, [request(route, Op.WRITE_IMM, 2 * MTU + 3)])[0]
    cut = packets(record)
    assert opcodes(cut) == [0x06, 0x07, 0x09]
    assert [packet.psn for packet in cut] == [PSN, PSN + 1, 0]
    assert [packet.ack for packet in cut] == [False, False, True]
    assert [packet.flags >> 7 for packet in cut] == [0, 0, 1]
    assert [packet.pad for packet in cut] == [0, 0, 1]
    reth = ADDRESS.to_bytes(8, "big") + RKEY.to_bytes(4, "big") + (2 * MTU + 3).to_bytes(4, "big")
    assert [packet.extensions for packet in cut] == [
        {"reth": reth}, {}, {"imm": bytes.fromhex("deadbeef")},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "length", "reliable", "expected"),
    [
        (Op.SEND, 0, True, [0x04]),
        (Op.SEND, MTU, True, [0x04]),
        (Op.SEND, MTU + 1, True, [0x00, 0x02]),
        (Op.SEND_IMM, 1, True, [0x05]),
        (Op.SEND_IMM, 3 * MTU, True, [0x00, 0x01, 0x03]),
        (Op.SEND_INV, 1, True, [0x17]),
        (Op.SEND_INV, MTU + 1, True, [0x00, 0x16]),
        (Op.WRITE, 0, True, [0x0A]),
        (Op.WRITE, MTU + 1, True, [0x06, 0x08]),
        (Op.WRITE_IMM, 1, True, [0x0B]),
        (Op.READ, 3 * MTU, True, [0x0C]),
        (Op.COMPARE_SWAP, 8, True, [0x13]),
        (Op.FETCH_ADD, 8, True, [0x14]),
        (Op.MASKED_FETCH_ADD, 8, True, [0x14]),
        (Op.SEND, 3 * MTU, False, [0x20, 0x21, 0x22]),
        (Op.WRITE_IMM, MTU + 1, False, [0x26, 0x29]),
    ],
)
def test_opcodes(tmp_path: Path, op: Op, length: int, reliable: bool, expected: list[int]) -> None:
    record = logged(tmp_path, [request(routes()["v1"], op, length, reliable=reliable)])[0]
    cut = packets(record)
    assert opcodes(cut) == expected
    assert cut[-1].ack is reliable


def test_what_a_read_brings(tmp_path: Path) -> None:
    route = routes()["v1"]
    answers: list[Message] = [
        Response(
            route, QPN_A, PSN, 0, 5, views(content(length)), packets=packets_of(length), read=True
        )
        for length in (0, 1, MTU + 1, 3 * MTU)
    ]
    cut = [packets(record) for record in logged(tmp_path, answers)]
    assert [opcodes(each) for each in cut] == [[0x10], [0x10], [0x0D, 0x0F], [0x0D, 0x0E, 0x0F]]
    aeth = bytes.fromhex("1f000005")  # no credits are counted
    assert [packet.extensions for packet in cut[3]] == [{"aeth": aeth}, {}, {"aeth": aeth}]
    assert [packet.psn for packet in cut[3]] == [PSN, PSN + 1, 0]


def test_acknowledgements(tmp_path: Path) -> None:
    """An ACK names the last packet of what it answers, a NAK the first that it refuses."""
    route = routes()["v1"]
    answers: list[Message] = [
        Response(route, QPN_A, 10, Syndrome.ACK, 7, packets=3),
        Response(route, QPN_A, 10, Syndrome.NAK_REMOTE_ACCESS, 7),
        Response(route, QPN_A, 10, Syndrome.RNR_NAK | 14, 7),
        Response(route, QPN_A, 10, Syndrome.ACK, 8, (), 0x0123456789ABCDEF),
    ]
    cut = [packets(record)[0] for record in logged(tmp_path, answers)]
    assert opcodes(cut) == [0x11, 0x11, 0x11, 0x12]
    assert [packet.psn for packet in cut] == [12, 10, 10, 10]
    aeths = [packet.extensions["aeth"].hex() for packet in cut]
    assert aeths == ["1f000007", "62000007", "2e000007", "1f000008"]
    assert cut[3].extensions["atomic_ack"].hex() == "0123456789abcdef"


def test_atomics_carry_their_operands(tmp_path: Path) -> None:
    plain, masked = logged(
        tmp_path,
        [request(routes()["v1"], op, 8) for op in (Op.COMPARE_SWAP, Op.MASKED_COMPARE_SWAP)],
    )
    operands = (0x1111).to_bytes(8, "big") + (0x2222).to_bytes(8, "big")
    address = ADDRESS.to_bytes(8, "big") + RKEY.to_bytes(4, "big")
    assert packets(plain)[0].extensions == {"atomic": address + operands}
    assert "masks 0xffff and 0xffff" in next(frames_of(masked)).comment


def test_xrc_requests_name_their_queue(tmp_path: Path) -> None:
    route = routes()["v1"]
    messages: list[Message] = [
        request(route, Op.SEND_IMM, MTU + 1, srqn=0x77),
        request(route, Op.READ, 1, srqn=0x77),
        request(route, Op.FETCH_ADD, 8, srqn=0x77),
        Response(route, QPN_A, PSN, 0, 3, views(content(1)), read=True, xrc=True),
    ]
    cut = [packets(record) for record in logged(tmp_path, messages)]
    assert [opcodes(each) for each in cut] == [[0xA0, 0xA3], [0xAC], [0xB4], [0xB0]]
    assert {packet.extensions["xrceth"].hex() for each in cut[:3] for packet in each} == {
        "00000077"
    }
    assert cut[0][1].extensions["imm"].hex() == "deadbeef"
    assert "xrceth" not in cut[3][0].extensions


def test_a_datagram_says_who_sent_it(tmp_path: Path) -> None:
    plain, immediate, _, mad = (
        packets(record)[0] for record in logged(tmp_path, [*datagrams(routes()["v1"])])
    )
    assert plain.extensions == {"deth": bytes.fromhex("11111111") + QPN_A.to_bytes(4, "big")}
    assert immediate.extensions["imm"].hex() == "00001234"
    assert (immediate.opcode, immediate.flags >> 6) == (0x65, 3)
    assert (mad.target, len(mad.payload), mad.flags) == (1, 256, 0)


def test_a_version_of_roce_can_be_forced(tmp_path: Path) -> None:
    ways = routes()
    records = logged(tmp_path, [request(ways[way], Op.WRITE, 9) for way in WAYS])
    for way, record in zip(WAYS, records, strict=True):
        if way.startswith("ib"):
            assert packets(record, 2)[0].network == way  # there is no MAC address to force it with
            continue
        assert packets(record, 1)[0].network == "v1"
        mapped = ways[way].sgid != LOCAL_A
        assert packets(record, 2)[0].network == ("v2-ipv4" if mapped else "v2-ipv6")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("capture", [0, 300, MTU, MTU + 7])
def test_payload_that_was_not_kept(tmp_path: Path, way: str, capture: int) -> None:
    """Headers and lengths are right all the same; a frame ends where the payload does."""
    record = logged(tmp_path, [request(routes()[way], Op.SEND, 3 * MTU)], capture)[0]
    cut = packets(record)
    assert len(cut) == 3
    assert b"".join(packet.payload for packet in cut) == content(3 * MTU)[: max(capture, 256)]
    assert [packet.whole for packet in cut] == [(at + 1) * MTU <= capture for at in range(3)]


def test_management_datagrams_and_headers_are_kept_in_any_case(tmp_path: Path) -> None:
    frame = arp()
    frame.trains[0].frames.append(bytes(200))
    records = logged(tmp_path, [*datagrams(routes()["v1"]), frame], 0)
    assert len(records[3].payload) == 256
    assert next(frames_of(records[4])).data == frame.trains[0].frames[0]
    assert (len(records[5].payload), records[5].length) == (128, 200)


def test_a_port_that_is_down_sends_nothing(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    port = Cable(MAC_A)
    fabric = CapturedFabric(LocalFabric(), log, "a")
    fabric.attach(port)
    fabric.announce(port, port.addresses, up=False)
    fabric.send(port, arp())
    log.close()
    assert list(LogReader(tmp_path)) == []


LENGTHS = st.integers(0, 20000)


@given(LENGTHS, st.sampled_from((256, 512, 1024, 2048, 4096)))
def test_any_length_at_any_mtu(length: int, mtu: int) -> None:
    """The number of packets tells the MTU, unless one of them was enough."""
    count = -(-length // mtu) or 1
    message = WireMessage(
        What.REQUEST, length, bytes(length), packets=count, flags=2, source=MAC_A,
        destination=MAC_B, sgid=LOCAL_A, dgid=LOCAL_B, vlan=0xFFFF, hop_limit=1,
    )  # fmt: skip
    frames = list(frames_of(message))
    assert len(frames) == count
    if count > 1:
        assert frames[0].length == 14 + 40 + 12 + mtu + 4


def test_nonsense_in_a_message_is_named() -> None:
    message = WireMessage(What.REQUEST, 5000, b"", packets=1 << 31, sgid=bytes(16))
    with pytest.raises(PacketError, match="5000 bytes in"):
        list(frames_of(message))


def test_nonsense_in_a_record_is_named(tmp_path: Path) -> None:
    nonsense = request(routes()["v1"], Op.WRITE, 5000)
    nonsense.packets = 1 << 31
    write_log(tmp_path, [nonsense])
    with pytest.raises(LogError, match=r"recorded at \d\.\d{6} s is damaged: 5000 bytes in"):
        export(LogReader(tmp_path), Filter(), BytesIO())
