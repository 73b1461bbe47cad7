"""Checksums and tags that the adapter computes in frames, and what it says of those received.

`kernel_sum` is what Linux makes of the sum (`en_rx.c: check_csum`): CHECKSUM_COMPLETE.
"""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.frames.frame import FrameHeaders, ones_sum
from bluebridge.device.frames.sending import fill_ip_checksum, fill_l4_checksum, tagged
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE, FrameStatus
from bluebridge.device.layout.net.ethernet import ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN
from tests.models.ethernet import ethernet_qp, ip_frame, steer
from tests.models.rdma_node import Pair, SendOpcode, data


def naive_checksum(raw: bytes) -> int:
    """RFC 1071 word by word."""
    total = 0
    for at in range(0, len(raw), 2):
        total += int.from_bytes(raw[at : at + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@given(st.binary(max_size=200) | st.binary(min_size=513, max_size=3000))
def test_sums_are_those_of_the_definition(raw: bytes) -> None:
    assert ones_sum(raw) == (naive_checksum(raw) ^ 0xFFFF) % 0xFFFF


@given(st.binary(max_size=200))
def test_offloads_survive_any_frame(raw: bytes) -> None:
    frame = bytearray(raw)
    packet = FrameHeaders(frame)
    fill_ip_checksum(frame, packet)
    fill_l4_checksum(frame, packet)
    assert len(frame) == len(raw)
    packet.header_is_good(frame)
    packet.transport_is_good(frame)


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
    assert naive_checksum(bytes(ip)) == 0
    pseudo = bytes(ip[12:20]) + pack(">HH", protocol, len(l4))
    assert naive_checksum(pseudo + bytes(l4)) == 0


def test_ipv6_checksum() -> None:
    l4 = pack(">HHHH", 1, 2, 11, 0) + b"abc"
    frame = bytearray(bytes(12) + b"\x86\xdd" + pack(">IHBB", 6 << 28, 11, 17, 1))
    frame += bytes(range(32)) + l4
    fill_l4_checksum(frame, FrameHeaders(frame))
    assert FrameHeaders(frame).transport_is_good(frame)
    assert naive_checksum(bytes(range(32)) + pack(">II", 11, 17) + bytes(frame[54:])) == 0


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


ICMP, GRE = 1, 47
BODY = bytes(range(200))


def arrive(pair: Pair, frame: bytes | bytearray) -> bytes:
    """The completion of a frame that is sent as it is."""
    source, lkey = pair.a.memory(4096)
    target, key = pair.b.memory(4096)
    raw = pair.b.mac + pair.a.mac + bytes(frame[12:])
    pair.a.host.poke(source, raw)
    pair.post_recv([(key, target, 2048)])
    pair.post_send(SendOpcode.SEND, data((lkey, source, len(raw))))
    (wc,) = pair.b.completions(pair.qb)
    return wc.raw


def total(raw: bytes) -> int:
    """One's complement sum of 16-bit words."""
    return int.from_bytes(raw + bytes(len(raw) & 1), "big") % 0xFFFF


def v4(protocol: int, body: bytes = BODY) -> bytearray:
    """An IPv4 frame with a good header."""
    frame = ip_frame(body, protocol)
    fill_ip_checksum(frame, FrameHeaders(frame))
    return frame


def kernel_sum_v4(cqe: bytes, frame: bytes | bytearray) -> int:
    """`get_fixed_ipv4_csum`."""
    size = len(frame) - 34
    pseudo = bytes(frame[26:34]) + pack(">HH", frame[23], size)
    return (FRAME_CQE.get(cqe, "checksum") - total(pseudo)) % 0xFFFF


@pytest.mark.parametrize("protocol", [6, 17])
def test_good_transport_is_verified(pair: Pair, protocol: int) -> None:
    frame = v4(protocol)
    fill_l4_checksum(frame, FrameHeaders(frame))
    cqe = arrive(pair, frame)
    status = FrameStatus(FRAME_CQE.get(cqe, "status"))
    assert FrameStatus.IPV4 | FrameStatus.IP_OK in status
    assert (FrameStatus.TCP if protocol == 6 else FrameStatus.UDP) in status
    assert FRAME_CQE.get(cqe, "checksum") == 0xFFFF


@pytest.mark.parametrize("protocol", [ICMP, GRE, 6, 17])
def test_all_else_gets_the_sum_of_its_payload(pair: Pair, protocol: int) -> None:
    """TCP with a bad checksum, too: software finds that out with it. Here UDP has none."""
    frame = v4(protocol)
    cqe = arrive(pair, frame)
    assert FRAME_CQE.get(cqe, "checksum") != 0xFFFF
    assert kernel_sum_v4(cqe, frame) == total(bytes(frame[14:]))


def test_a_fragment_gets_the_sum_of_its_part(pair: Pair) -> None:
    frame = ip_frame(BODY, 17)
    frame[20:22] = b"\x20\x05"
    fill_ip_checksum(frame, FrameHeaders(frame))
    cqe = arrive(pair, frame)
    status = FrameStatus(FRAME_CQE.get(cqe, "status"))
    assert FrameStatus.IPV4_FRAGMENT in status
    assert FrameStatus.UDP not in status
    assert kernel_sum_v4(cqe, frame) == total(bytes(frame[14:]))


def test_ipv6_sums_lack_six_bytes_of_the_header(pair: Pair) -> None:
    frame = bytes(12) + b"\x86\xdd" + pack(">IHBB", 0x60000001, len(BODY), 58, 255) + bytes(
        range(32)
    )  # fmt: skip
    frame += BODY
    cqe = arrive(pair, frame)
    missing = total(frame[14:18]) + total(frame[20:22])
    assert (FRAME_CQE.get(cqe, "checksum") + missing) % 0xFFFF == total(frame[14:])
    assert FrameStatus(FRAME_CQE.get(cqe, "status")) == FrameStatus.IPV6 | FrameStatus.IP_OK


def test_software_is_not_told_of_ip_where_it_does_not_look(pair: Pair) -> None:
    """Two tags: one is stripped, and behind the other is no IP header for `check_csum`."""
    inner = v4(ICMP)
    tagged = bytes(inner[:12]) + b"\x81\0\0\5" * 2 + bytes(inner[12:])
    cqe = arrive(pair, tagged)
    assert FRAME_CQE.get(cqe, "cvlan_present") == 1
    any_ip = FrameStatus.IPV4 | FrameStatus.IPV6
    assert not FRAME_CQE.get(cqe, "status") & any_ip
    once = bytes(inner[:12]) + b"\x81\0\0\5" + bytes(inner[12:])
    assert FRAME_CQE.get(arrive(pair, once), "status") & FrameStatus.IPV4


@pytest.mark.parametrize(("kind", "told"), [(b"\x81\0", 1), (b"\x88\xa8", 0)])
def test_a_tag_that_stays_is_told_of(pair: Pair, kind: bytes, told: int) -> None:
    """`get_fixed_vlan_csum` relies on it for customer tags; it knows no others."""
    pair.qb = ethernet_qp(pair.b, 0x4A, no_vlan_strip=1)
    steer(pair.b, 0x4A)
    inner = v4(ICMP)
    cqe = arrive(pair, bytes(inner[:12]) + kind + b"\0\5" + bytes(inner[12:]))
    assert FRAME_CQE.get(cqe, "cvlan_present") == told
    assert FRAME_CQE.get(cqe, "byte_count") == len(inner) + 4
    assert bool(FRAME_CQE.get(cqe, "status") & FrameStatus.IPV4) == bool(told)
