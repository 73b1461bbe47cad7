"""Frames of ARP and neighbour discovery, and what is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.neighbours import Heard, neighbours_of

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
