"""What the adapter computes in frames on their way out: checksums and tags."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.ethernet.frames.frame import FrameHeaders, ones_complement
from bluebridge.device.ethernet.frames.offloads import fill_ip_checksum, fill_l4_checksum, tagged
from bluebridge.device.layout.net.ethernet import ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN


def naive_checksum(raw: bytes) -> int:
    """RFC 1071 word by word."""
    total = 0
    for at in range(0, len(raw), 2):
        total += int.from_bytes(raw[at : at + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@given(st.binary(max_size=200))
def test_checksum_equals_the_definition(raw: bytes) -> None:
    assert ones_complement(raw) == naive_checksum(raw)


@given(st.binary(max_size=200))
def test_offloads_survive_any_frame(raw: bytes) -> None:
    frame = bytearray(raw)
    packet = FrameHeaders(frame)
    fill_ip_checksum(frame, packet)
    fill_l4_checksum(frame, packet)
    assert len(frame) == len(raw)
    packet.header_is_good(frame)
    packet.transport_is_good(frame)


def ip_frame(payload: bytes, protocol: int = 17) -> bytearray:
    """UDP or TCP over IPv4 with empty checksums."""
    size = 20 if protocol == 6 else 8
    l4 = pack(">HHHH", 1, 2, 8 + len(payload), 0).ljust(size, b"\0") + payload
    ip = pack(
        ">BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(l4),
        1,
        0,
        64,
        protocol,
        0,
        b"\xc0\xa8\1\1",
        b"\xc0\xa8\1\2",
    )
    return bytearray(bytes(12) + b"\x08\x00" + ip + l4)


@pytest.mark.parametrize("protocol", [6, 17])
@pytest.mark.parametrize("payload", [b"", b"odd", b"x" * 100])
def test_filled_checksums_verify(payload: bytes, protocol: int) -> None:
    frame = bytearray(tagged(bytes(ip_frame(payload, protocol)), ETHERTYPE_VLAN, 5))
    frame += bytes(7)  # padding is not covered
    packet = FrameHeaders(frame)
    fill_ip_checksum(frame, packet)
    fill_l4_checksum(frame, packet)
    assert packet.header_is_good(frame)
    assert packet.transport_is_good(frame)
    ip, l4 = frame[18:38], frame[38:-7]
    assert ones_complement(ip) == 0
    pseudo = bytes(ip[12:20]) + pack(">HH", protocol, len(l4))
    assert naive_checksum(pseudo + bytes(l4)) == 0


def test_ipv6_checksum() -> None:
    l4 = pack(">HHHH", 1, 2, 11, 0) + b"abc"
    frame = bytearray(bytes(12) + b"\x86\xdd" + pack(">IHBB", 6 << 28, 11, 17, 1))
    frame += bytes(range(32)) + l4
    fill_l4_checksum(frame, FrameHeaders(frame))
    assert FrameHeaders(frame).transport_is_good(frame)
    assert naive_checksum(bytes(range(32)) + pack(">II", 11, 17) + bytes(frame[54:])) == 0


@given(st.binary(min_size=513, max_size=3000))
def test_long_sums_are_folded_right(raw: bytes) -> None:
    assert ones_complement(raw) == naive_checksum(raw)


def test_tags() -> None:
    frame = bytes(range(12)) + b"\x08\0"
    assert tagged(frame, 0, 0x1234) is frame
    assert tagged(frame, ETHERTYPE_VLAN, 0x6005) == (bytes(range(12)) + b"\x81\0\x60\x05\x08\0")
    assert tagged(frame, ETHERTYPE_SERVICE_VLAN, 7)[12:16] == b"\x88\xa8\0\x07"


@pytest.mark.parametrize("flip", [14, 20, 24, 30, 40])
def test_wrong_checksums_are_found(flip: int) -> None:
    frame = ip_frame(b"some payload", 6)
    packet = FrameHeaders(frame)
    fill_ip_checksum(frame, packet)
    fill_l4_checksum(frame, packet)
    frame[flip] ^= 0x20
    packet = FrameHeaders(frame)
    assert not (packet.header_is_good(frame) and packet.transport_is_good(frame))


def test_udp_without_checksum_has_no_verdict() -> None:
    frame = ip_frame(b"data", 17)
    assert not FrameHeaders(frame).transport_is_good(frame)


def test_fragments_and_strange_headers_are_left_alone() -> None:
    frame = ip_frame(b"data of a fragment", 17)
    frame[20:22] = b"\x20\0"
    before = bytes(frame)
    fill_l4_checksum(frame, FrameHeaders(frame))
    assert frame == before
    assert FrameHeaders(frame).fragment
    frame[14] = 0x42  # a header of eight bytes
    assert not FrameHeaders(frame).version
