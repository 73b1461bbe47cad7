"""A VXLAN tunnel without its socket: what it sends where, and what it refuses."""

from __future__ import annotations

import random

import pytest

from bluebridge.device.layout.net.ip import VXLAN
from bluebridge.device.underlay.tunnel import (
    AGE_SECONDS,
    LONGEST,
    MOST_LEARNED,
    Endpoint,
    Refusal,
    Tunnel,
)

ONE, OTHER = Endpoint("10.0.0.2", 4789), Endpoint("10.0.0.3", 4789)
HERE, THERE = bytes.fromhex("0002c9bb0001"), bytes.fromhex("0002c9bf0001")
FRAME = HERE + THERE + b"\x08\x00" + bytes(46)
WIRE = bytes.fromhex("08000000 00004d00")
"""The header of network 77 as RFC 7348 draws it."""


@pytest.fixture
def tunnel() -> Tunnel:
    """A tunnel to two peers."""
    return Tunnel(77, [ONE, OTHER])


def test_the_header_is_that_of_the_rfc(tunnel: Tunnel) -> None:
    assert tunnel.header == WIRE
    assert VXLAN.get(WIRE, "vni") == 77
    assert tunnel.read(ONE, WIRE + FRAME, 0.0) == FRAME


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"", Refusal.SHORT),
        (WIRE, Refusal.SHORT),
        (WIRE + FRAME[:13], Refusal.SHORT),
        (WIRE + FRAME + bytes(LONGEST), Refusal.LONG),
        (b"\0" + WIRE[1:] + FRAME, Refusal.FORM),
        (b"\x0c" + WIRE[1:] + FRAME, Refusal.FORM),
        (bytes.fromhex("08000000 00004e00") + FRAME, Refusal.NETWORK),
        (bytes.fromhex("08000000 01004d00") + FRAME, Refusal.NETWORK),
        (WIRE + HERE + b"\1" + FRAME[7:], Refusal.SOURCE),
        (WIRE + HERE + bytes(6) + FRAME[12:], Refusal.SOURCE),
    ],
)
def test_what_is_no_frame_of_this_network_is_counted(
    tunnel: Tunnel, datagram: bytes, why: Refusal
) -> None:
    assert tunnel.read(ONE, datagram, 0.0) is None
    assert tunnel.refused == {**dict.fromkeys(Refusal, 0), why: 1}
    assert not tunnel.addresses(0.0)


def test_strangers_are_counted_and_peers_may_send_from_any_port(tunnel: Tunnel) -> None:
    assert tunnel.peer(Endpoint("10.0.0.9", 4789)) is None
    assert tunnel.refused[Refusal.STRANGER] == 1
    assert tunnel.peer(Endpoint("10.0.0.3", 50000)) == OTHER


def test_peers_of_one_host_are_told_apart_by_their_ports() -> None:
    first, second = Endpoint("127.0.0.1", 5001), Endpoint("127.0.0.1", 5002)
    tunnel = Tunnel(1, [first, second])
    assert [tunnel.peer(each) for each in (second, first)] == [second, first]


def test_frames_go_where_their_address_was_heard_last(tunnel: Tunnel) -> None:
    assert tunnel.targets(THERE, 0.0) == (ONE, OTHER), "nobody knows: to all"
    tunnel.read(ONE, WIRE + FRAME, 1.0)
    assert tunnel.targets(THERE, 1.0) == (ONE,)
    tunnel.read(OTHER, WIRE + FRAME, 2.0)
    assert tunnel.targets(THERE, 2.0) == (OTHER,), "the guest has moved"
    assert tunnel.addresses(2.0) == {THERE}
    assert tunnel.targets(THERE, 3.0 + AGE_SECONDS) == (ONE, OTHER), "quiet for too long"
    assert not tunnel.addresses(3.0 + AGE_SECONDS)


def test_a_peer_that_makes_up_addresses_takes_bounded_room(tunnel: Tunnel) -> None:
    for number in range(10 * MOST_LEARNED):
        source = (0x020000000000 + number).to_bytes(6, "big")
        assert tunnel.read(ONE, WIRE + HERE + source + FRAME[12:], 0.0)
    assert len(tunnel.addresses(0.0)) == MOST_LEARNED


def test_no_bytes_make_it_fail() -> None:
    chance = random.Random(28)
    tunnel = Tunnel(77, [ONE])
    for _ in range(20_000):
        datagram = bytearray(WIRE + FRAME)
        for _ in range(chance.randrange(4)):
            datagram[chance.randrange(len(datagram))] = chance.randrange(256)
        del datagram[chance.randrange(len(datagram) + 1) :]
        found = tunnel.read(ONE, bytes(datagram), 0.0)
        assert found is None or found == datagram[len(WIRE) :]
    assert tunnel.refused[Refusal.SHORT] > 1000
