"""Packets against bytes that others computed: headers of PCI Express, CRCs of RoCE."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.pcie import BY_TYPE, COMPLETION, MEMORY_64, PSEUDO_HEADER, TlpType
from bluebridge.device.packets import crc, tlp
from bluebridge.device.packets.tlp import Packer
from tests.models.capture_reader import bitwise_crc


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (tlp.memory_read(0x1000, 4, 0x0100, 7), "00000001 0100070f 00001000"),
        (tlp.memory_read(0xFFFF_F000, 512, 0x0100, 7), "00000080 010007ff fffff000"),
        (tlp.memory_read(0x1_0000_0000, 4, 0, 1), "20000001 0000010f 00000001 00000000"),
        (tlp.memory_write(0xFB80002014, 4, 0), "60000001 0000000f 000000fb 80002014"),
        (tlp.memory_write(0x1001, 1, 0), "40000001 00000002 00001000"),
        (tlp.memory_write(0x1003, 6, 0), "40000003 00000018 00001000"),
        (tlp.memory_write(0x1002, 2, 0), "40000001 0000000c 00001000"),
        (tlp.memory_read(0x2000, 0, 0, 2), "00000001 00000200 00002000"),
        (tlp.memory_read(0, 4096, 0, 0), "00000000 000000ff 00000000"),
        (tlp.config(TlpType.CONFIG_READ_0, 0x06, 2, 0, 9), "04000001 0000090c 00000004"),
        (tlp.config(TlpType.CONFIG_WRITE_0, 0x2C0, 4, 0x0100, 9), "44000001 0000090f 010002c0"),
        (tlp.completion(256, 0x25000, 512, 0, 0x0100, 7), "4a000040 00000200 01000700"),
        (tlp.completion(1, 0x83, 1, 0x0100, 0, 7), "4a000001 01000001 00000703"),
        (tlp.completion(4096, 0, 4096, 0, 0, 0), "4a000000 00000000 00000000"),
        (tlp.config_completion(data=True, completer=0, tag=5), "4a000001 00000004 00000500"),
        (tlp.config_completion(data=False, completer=0, tag=5), "0a000000 00000004 00000500"),
    ],
)
def test_a_header(header: bytes, expected: str) -> None:
    assert header.hex(" ", 4) == expected


def test_data_lie_in_dwords_at_their_place() -> None:
    assert tlp.payload(0x1003, b"abc", 3).hex() == "0000006162630000"
    assert tlp.payload(0x1000, b"abcd", 4) == b"abcd"
    assert tlp.payload(0x1001, b"a", 9).hex() == "0061"  # what is not known is not made up


@given(st.integers(0, (1 << 64) - 5000), st.integers(1, 4096))
def test_enabled_bytes_are_those_of_the_request(address: int, length: int) -> None:
    first, last = tlp.enables(address, length)
    count = tlp.dwords(address, length)
    enabled = f"{first:04b}"[::-1] if count == 1 else f"{first:04b}"[::-1] + "1111" * (count - 2)
    enabled += f"{last:04b}"[::-1]
    assert enabled.strip("0") == "1" * length
    assert enabled.index("1") == address % 4
    assert (last == 0) == (count == 1)


@given(st.data())
def test_packing_as_one_integer_gives_what_the_table_gives(data: st.DataObject) -> None:
    for struct in (*set(BY_TYPE.values()), PSEUDO_HEADER):
        values = {item.name: data.draw(st.integers(0, item.mask)) for item in struct}
        assert Packer(struct).pack(**values) == struct.pack(**values)


def test_headers_have_the_size_that_their_format_says() -> None:
    for kind, struct in BY_TYPE.items():
        assert struct.size == (16 if kind & 0x20 else 12)
    assert BY_TYPE[TlpType.MEMORY_WRITE_64] is MEMORY_64
    assert BY_TYPE[TlpType.COMPLETION] is COMPLETION


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
