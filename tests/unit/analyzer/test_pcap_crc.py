"""The CRCs against packets whose checks others computed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.packets import crc
from tests.models.capture_reader import bitwise_crc


def test_the_sample_packet_of_the_specification() -> None:
    """InfiniBand vol. 1, 7.8.3: a packet with a local route header only."""
    packet = bytes.fromhex(
        "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a050000000e"
        "bb884d85fd5cfba4728bc0690ed40000"
    )
    before = crc.before_infiniband(packet[:8], b"")
    assert crc.invariant(before, packet[8:]) == bytes.fromhex("9625b75a")


def test_a_packet_captured_from_an_adapter() -> None:
    """A congestion notification of a ConnectX-4 Lx, from the tests of scapy (contrib/roce.uts)."""
    ip = bytes.fromhex("45c2003c718c4000 4011 9161 0a001101 0a001201")
    udp = bytes.fromhex("000012b700280000")
    transport = bytes.fromhex("8100ffff40000118 00000000 00000000000000000000000000000000")
    assert crc.invariant(crc.before_roce_v2(ip, udp), transport) == bytes.fromhex("82fd002a")


def test_a_packet_of_an_unreliable_connection() -> None:
    """Example from the tests of scapy; its UDP checksum is set and must not count."""
    ip = bytes.fromhex("4501004004784000 4011 b4d5 c0a80007 c0a80007")
    udp = bytes.fromhex("c00012b7002caca2")
    bth = bytes.fromhex("2460ffff000000d300cf1710")
    payload = b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00"
    assert crc.invariant(crc.before_roce_v2(ip, udp), bth + payload) == bytes.fromhex("78f353f3")


def test_what_switches_change_does_not_count() -> None:
    """A GRH with other traffic class, flow label and hop limit, a BTH with FECN and BECN."""
    grh = bytes.fromhex("6000000000181b40") + bytes(range(32))
    changed = bytes.fromhex("6fedcba900181b3f") + bytes(range(32))
    bth = bytes.fromhex("0440ffff0000025080000001")
    marked = bytes.fromhex("0440ffffc000025080000001")
    before = crc.before_roce_v1(grh)
    assert crc.invariant(crc.before_roce_v1(changed), marked) == crc.invariant(before, bth)
    assert crc.invariant(before, bth[:-1] + b"\2") != crc.invariant(before, bth)


@given(st.binary(max_size=300))
def test_the_variant_crc_bit_by_bit(data: bytes) -> None:
    assert crc.variant(data) == bitwise_crc(data, 0xD008, 16).to_bytes(2, "little")
