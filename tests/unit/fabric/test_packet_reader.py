"""Packets off a wire: what others built is read, what is damaged is refused and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.net.ip import ones_complement_sum, source_port
from bluebridge.device.layout.net.roce import BthOpcode
from bluebridge.device.packets import crc
from bluebridge.device.packets.carriers import frames_of
from bluebridge.device.packets.reader import PacketReader, Reason, Refused, WirePacket, read_packet
from tests.models.capture_reader import ETHERNET, Captured, parse
from tests.models.capture_traffic import datagrams, requests, routes
from tests.unit.analyzer.test_pcap_frames import logged

MACS = bytes(range(12))
IPV4, IPV6 = b"\x08\0", b"\x86\xdd"
HELLO = (
    "45000034 00004000 40111f65 c0a84d01 c0a84d02 c12312b7 00200000"
    "0470ffff 00000049 80000007 68656c6c 6f000000 e7924e88"
)
ACK = (
    "45000030 00004000 40111f69 c0a84d02 c0a84d01 c12412b7 001c0000"
    "1140ffff 0000004a 00000007 1f000001 6d493169"
)
READ = (
    "60000000 00281140 fe800000000000000000000000000001 fe800000000000000000000000000002"
    "c00112b7 00280000 0c40ffff 00000049 80fffffe 00007f00 00001000 00001234 00000bb8 51c4613e"
)
NOTIFICATION = (
    "45c2003c718c4000 4011 9161 0a001101 0a001201 000012b700280000"
    "8100ffff40000118 00000000 00000000000000000000000000000000 82fd002a"
)
"""Of a ConnectX-4 Lx, from the tests of scapy (contrib/roce.uts), and the next one."""
UNRELIABLE = (
    "45010040 04784000 4011b4d5 c0a80007 c0a80007 c00012b7 002caca2 2460ffff 000000d3 00cf1710"
    "4630818b e28935d9 0e9a9550 5401be88 5e500000 78f353f3"
)


def frame(kind: bytes, text: str) -> bytes:
    """An Ethernet frame around hexadecimal bytes."""
    return MACS + kind + bytes.fromhex(text)


def words(packet: WirePacket) -> tuple[int, int, int, bool, bytes]:
    """Return what most packets are told apart by."""
    return packet.opcode, packet.target_qpn, packet.psn, packet.ack, bytes(packet.payload)


def test_public_packets() -> None:
    """Two worked examples over IPv4, one over IPv6, two that scapy's authors found or made."""
    hello = read_packet(frame(IPV4, HELLO))
    assert words(hello) == (BthOpcode.RC_SEND_ONLY, 0x49, 7, True, b"hello")
    assert (hello.source_port, hello.migrated, hello.form) == (0xC123, True, 2)
    assert (hello.sgid[-4:], hello.dgid[-4:]) == (b"\xc0\xa8\x4d\x01", b"\xc0\xa8\x4d\x02")
    ack = read_packet(frame(IPV4, ACK))
    assert words(ack) == (BthOpcode.RC_ACK, 0x4A, 7, False, b"")
    assert ack.headers() == {"AETH": {"syndrome": 0x1F, "msn": 1}}
    read = read_packet(frame(IPV6, READ))
    assert words(read) == (BthOpcode.RC_READ_REQUEST, 0x49, 0xFFFFFE, True, b"")
    assert read.headers() == {"RETH": {"va": 0x7F0000001000, "rkey": 0x1234, "length": 3000}}
    notification = read_packet(frame(IPV4, NOTIFICATION))
    assert words(notification) == (BthOpcode.CNP, 0x118, 0, False, b"")
    assert notification.traffic_class == 0xC2
    unreliable = read_packet(frame(IPV4, UNRELIABLE))
    assert words(unreliable)[:4] == (0x24, 0xD3, 0xCF1710, False)
    assert len(unreliable.payload) == 18


def test_a_tag_and_padding_to_the_least_length() -> None:
    tagged = MACS + bytes.fromhex("8100 6064") + IPV4 + bytes.fromhex(ACK)
    packet = read_packet(tagged.ljust(60, b"\0"))
    assert (packet.tag, packet.opcode) == (0x6064, BthOpcode.RC_ACK)


@pytest.mark.parametrize("way", [way for way in sorted(routes()) if not way.startswith("ib")])
def test_what_the_capture_writer_makes(tmp_path: Path, way: str) -> None:
    """Every packet of every operation, against the reader of the tests, which shares nothing."""
    for message in logged(tmp_path, [*requests(routes()[way]), *datagrams(routes()[way])]):
        for one in frames_of(message):
            packet = read_packet(one.data)
            other = parse(Captured("", ETHERNET, 0, one.data, one.length))
            assert other is not None
            assert words(packet) == (
                other.opcode, other.target, other.psn, other.ack, other.payload,
            )  # fmt: skip
            assert packet.sgid + packet.dgid == other.gids
            assert (packet.pkey, packet.solicited) == (other.pkey, bool(other.flags >> 7))
            assert len(packet.headers()) == len(other.extensions)


def test_each_reason_is_counted() -> None:
    hello = frame(IPV4, HELLO)
    bad = {
        Reason.CARRIER: MACS + b"\x08\x06" + hello[14:],
        Reason.NETWORK: hello[:22] + b"\x3f" + hello[23:],  # TTL, whose checksum is the old one
        Reason.LENGTH: hello[:-1],
        Reason.CHECKSUM: hello[:40] + b"\1\1" + hello[42:],
        Reason.VERSION: hello[:43] + b"\x71" + hello[44:],
        Reason.OPCODE: hello[:42] + b"\x15" + hello[43:],
        Reason.ICRC: hello[:-6] + b"\1" + hello[-5:],
    }
    reader = PacketReader()
    assert list(bad) == list(Reason)
    for reason, data in bad.items():
        assert reader.read(data) is None
        assert reader.refused[reason] == 1
    assert reader.read(hello) is not None
    assert sum(reader.refused.values()) == len(bad)


@given(st.integers(0, len(bytes.fromhex(HELLO)) - 1))
def test_a_packet_that_was_cut(length: int) -> None:
    with pytest.raises(Refused):
        read_packet(frame(IPV4, HELLO)[: 14 + length])


@given(st.integers(0, 8 * len(bytes.fromhex(READ)) - 1))
def test_a_bit_that_was_turned_over(bit: int) -> None:
    """Only bits that routers may change are not missed: class, label, hop limit, FECN and BECN."""
    data = bytearray(frame(IPV6, READ))
    data[14 + bit // 8] ^= 0x80 >> bit % 8
    routers = {*range(4, 32), *range(56, 64), *range(48 * 8 + 32, 48 * 8 + 40)}
    if bit in routers:
        read_packet(bytes(data))
    else:
        with pytest.raises(Refused):
            read_packet(bytes(data))


@pytest.mark.parametrize("kind", [HELLO, ACK, NOTIFICATION, UNRELIABLE])
def test_a_path_that_is_known_changes_nothing(kind: str) -> None:
    """Its next packet is read, cut off or damaged in any byte, as the first would be."""
    reader, good = PacketReader(), frame(IPV4, kind)
    first = reader.read(good)
    cases = [good, *(good[:size] for size in range(len(good)))]
    cases += [good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :] for at in range(len(good))]
    for case in cases:
        fresh, found = PacketReader().read(case), reader.read(case)
        assert (fresh is None) == (found is None), case.hex()
        if fresh is not None and found is not None:
            hidden = {"head": None}
            assert vars_of(found) | hidden == vars_of(fresh) | hidden
    assert first is not None and sum(reader.refused.values()) > len(good)


def vars_of(packet: WirePacket) -> dict[str, object]:
    """All that a packet says."""
    names = [name for name in dir(packet) if not name.startswith("_")]
    return {name: value for name in names if not callable(value := getattr(packet, name))}


def test_the_source_port_is_that_of_the_linux_driver() -> None:
    """Folds of both numbers, `mlx4_qp_roce_entropy`; the same at both ends."""
    assert source_port(0x49, 0x4A) == 0xC003
    assert source_port(0x4A, 0x49) == 0xC003
    assert source_port(0x49, 0x49) == 0xC049
    assert source_port(0x120345, 0) == 0xC000 | 0x0357


@given(st.binary(max_size=80))
def test_the_internet_checksum_word_by_word(data: bytes) -> None:
    """RFC 1071, as a loop."""
    padded, total = data + bytes(len(data) & 1), 0
    for at in range(0, len(padded), 2):
        total += int.from_bytes(padded[at : at + 2], "big")
        total = (total & 0xFFFF) + (total >> 16)
    assert ones_complement_sum(data) == total ^ 0xFFFF


@pytest.mark.parametrize("way", ["v2-ipv4", "v2-ipv6"])
def test_scapy_computes_the_same_icrc(tmp_path: Path, way: str) -> None:
    """An implementation by others, over every packet of every operation."""
    pytest.importorskip("scapy", reason="pip install scapy")
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    for message in logged(tmp_path, [*requests(routes()[way]), *datagrams(routes()[way])]):
        for one in frames_of(message):
            network = 34 if way == "v2-ipv4" else 54
            end = network + int.from_bytes(one.data[network + 4 : network + 6], "big")
            packet = Ether(one.data[:end])  # it would count padding of the frame, too
            assert packet[BTH].compute_icrc(b"") == one.data[end - 4 : end]


def test_the_prefix_of_an_icrc() -> None:
    """`crc` goes on from where the network headers ended."""
    raw = bytes.fromhex(HELLO)
    before = crc.before_roce_v2(raw[:20], raw[20:28])
    assert crc.invariant(before, raw[28:-4]) == raw[-4:]
