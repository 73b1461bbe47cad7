"""Frames of the CM, ARP and neighbour discovery: fields in their places, and what is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.net.cm import (
    CM_DATA_SIZE,
    IP_HEADER_SIZE,
    MESSAGES,
    REQ,
    CmAttribute,
    cm_timeout_seconds,
    service_id,
)
from bluebridge.guest.cm.messages import (
    MalformedMessage,
    decode,
    encode,
    ip_header,
    parse_ip_header,
)
from bluebridge.guest.neighbours import Heard, neighbours_of


@st.composite
def messages(draw: st.DrawFn) -> tuple[CmAttribute, dict[str, Value]]:
    """A kind of message with values for all its fields."""
    kind = draw(st.sampled_from(CmAttribute))
    values: dict[str, Value] = {}
    for item in MESSAGES[kind]:
        if item.raw:
            values[item.name] = draw(st.binary(min_size=item.width, max_size=item.width))
        else:
            values[item.name] = draw(st.integers(0, item.mask))
    return kind, values


@given(messages(), st.integers(0, 2**64 - 1))
def test_messages_survive_the_wire(message: tuple[CmAttribute, dict[str, Value]], tid: int) -> None:
    """encode, then decode: no field overlaps another."""
    kind, values = message
    mad = encode(kind, tid, values)
    back = decode(mad)
    assert len(mad) == 256
    assert (back.kind, back.tid, dict(back.fields)) == (kind, tid, values)


@given(st.binary(max_size=300))
def test_garbage_is_refused(mad: bytes) -> None:
    """Anything may arrive on queue pair 1."""
    try:
        decode(mad)
    except MalformedMessage:
        return
    assert len(mad) == 256


def test_no_message_is_longer_than_a_mad() -> None:
    """Every table fills what the 24-byte header leaves."""
    assert {table.size for table in MESSAGES.values()} == {CM_DATA_SIZE}


def test_places_of_the_req() -> None:
    """Bytes as in table 106 of the InfiniBand specification."""
    data = REQ.pack(
        service_id=0x1060000 | 9999, local_qpn=0x123456, responder_resources=7, initiator_depth=9,
        remote_cm_timeout=20, starting_psn=0xABCDEF, local_cm_timeout=21, retry_count=7,
        pkey=0xFFFF, path_mtu=3, rnr_retry_count=6, max_cm_retries=15, primary_hop_limit=64,
        primary_ack_timeout=18,
    )  # fmt: skip
    assert data[8:16] == bytes.fromhex("000000000106270f")
    assert data[32:36] == bytes.fromhex("12345607")
    assert data[39] == 9
    assert data[43] == 20 << 3
    assert data[44:48] == bytes.fromhex("abcdef") + bytes([21 << 3 | 7])
    assert data[48:52] == bytes([0xFF, 0xFF, 3 << 4 | 6, 15 << 4])
    assert (data[93], data[95]) == (64, 18 << 3)


def test_ip_header() -> None:
    """36 bytes: version 4 in the high nibble, port, addresses at the end of their 16 bytes."""
    header = ip_header("192.168.69.128", 49152, "192.168.69.127")
    assert len(header) == IP_HEADER_SIZE
    assert header[:4] == bytes([0, 0x40, 0xC0, 0x00])
    assert header[16:20] == bytes([192, 168, 69, 128])
    back = parse_ip_header(header + b"private data of the consumer")
    assert (back.source, back.port, back.destination) == ("192.168.69.128", 49152, "192.168.69.127")
    for version in (b"\0\x50", b"\1\x40"):
        with pytest.raises(MalformedMessage):
            parse_ip_header(version + header[2:])


def test_ip_header_of_ipv6() -> None:
    """The same places, all 16 bytes of them."""
    header = ip_header("fd00::2", 49152, "fd00::1")
    assert header[:4] == bytes([0, 0x60, 0xC0, 0x00])
    assert header[4:6] == b"\xfd\0" and header[-1] == 1
    back = parse_ip_header(header)
    assert (back.source, back.port, back.destination) == ("fd00::2", 49152, "fd00::1")


def test_service_ids() -> None:
    """RDMA_PS_TCP and the port."""
    assert service_id(9999) == 0x0106270F
    with pytest.raises(ValueError, match="not in"):
        service_id(65536)


def test_timeouts() -> None:
    """4.096 us times a power of two."""
    assert cm_timeout_seconds(20) == pytest.approx(4.295, abs=0.001)


A, B = bytes.fromhex("0002c9bb0001"), bytes.fromhex("0002c9bb0002")
ADDRESSES = [
    (bytes((192, 168, 69, 1)), bytes((192, 168, 69, 2))),
    (bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")),
]


@pytest.mark.parametrize(("own", "other"), ADDRESSES)
def test_a_question_is_understood_and_answered(own: bytes, other: bytes) -> None:
    asking, asked = neighbours_of(own, A), neighbours_of(other, B)
    question = asking.question(other)
    assert question[0] & 1 and question[6:12] == A
    heard = asked.heard(question)
    assert heard == Heard(own, A, for_us=True, asks=True)
    answer = asked.answer(heard)
    assert answer[:12] == A + B
    assert asking.heard(answer) == Heard(other, B, for_us=True, asks=False)
    assert neighbours_of(ADDRESSES[0][0], A).heard(b"") is None


@pytest.mark.parametrize(("own", "other"), ADDRESSES)
def test_an_announcement_is_for_everybody(own: bytes, other: bytes) -> None:
    heard = neighbours_of(other, B).heard(neighbours_of(own, A).announcement())
    assert heard is not None and (heard.sender, heard.mac, heard.for_us) == (own, A, False)


def test_groups_of_an_ipv6_address() -> None:
    """RFC 2464: 33:33 and the last four bytes of the group."""
    own = bytes.fromhex("20010db8000000000000000000abcdef")
    assert neighbours_of(own, A).groups == (
        bytes.fromhex("333300000001"),
        bytes.fromhex("3333ffabcdef"),
    )


def test_a_solicitation_as_linux_sends_it() -> None:
    """As RFC 4861 and the checksum of RFC 4443 have it."""
    frame = bytes.fromhex(
        "3333ff000002 0002c9bb0001 86dd"
        "6000000000203aff"
        "fd000000000000000000000000000001 ff0200000000000000000001ff000002"
        "8700 b5d9 00000000 fd000000000000000000000000000002 0101 0002c9bb0001"
    )
    assert neighbours_of(ADDRESSES[1][0], A).question(ADDRESSES[1][1]) == frame
    heard = neighbours_of(ADDRESSES[1][1], B).heard(frame)
    assert heard is not None and heard.for_us
    damaged = frame[:-1] + bytes((frame[-1] ^ 1,))
    assert neighbours_of(ADDRESSES[1][1], B).heard(damaged) is None


@given(place=st.integers(0, 85), value=st.integers(0, 255), cut=st.integers(0, 86))
def test_damaged_frames_do_no_harm(place: int, value: int, cut: int) -> None:
    own, other = ADDRESSES[1]
    frame = bytearray(neighbours_of(own, A).question(other))
    frame[place] = value
    for address in (own, other, *ADDRESSES[0]):
        neighbours_of(address, B).heard(bytes(frame[:cut]))
