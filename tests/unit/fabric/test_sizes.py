"""Tests of what messages count as on their link: the lengths of the frames that they would be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.fabric.messages import Datagram, Part, Request, Response, Route
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import ATOMICS, NO_GID, Op, ipv4_gid
from bluebridge.device.packets.carriers import VCRC_SIZE, frames_of
from bluebridge.device.packets.message import (
    ATOMIC,
    IMMEDIATE,
    INFINIBAND,
    READ,
    RELIABLE,
    XRC,
    WireMessage,
)
from bluebridge.device.rdma.connected.requester import packets_of

V4 = ipv4_gid(bytes((10, 9, 0, 1)))
V6 = b"\xfe\x80".ljust(16, b"\1")
MAC, LID = b"\2\0\0\0\0\1", b"\0\7"
ROUTES = {
    "RoCE v1": Route(MAC, MAC, V4, V4),
    "RoCE v2 over IPv4": Route(MAC, MAC, V4, V4, roce=2),
    "RoCE v2 over IPv6": Route(MAC, MAC, V6, V6, roce=2),
    "RoCE v2 from IPv4 to IPv6": Route(MAC, MAC, V4, V6, roce=2),
    "InfiniBand": Route(LID, LID, NO_GID, NO_GID),
    "InfiniBand with GRH": Route(LID, LID, V6, V6),
}
routes = st.builds(
    lambda route, vlan: replace(route, vlan=vlan if len(route.dmac) == len(MAC) else NO_VLAN),
    st.sampled_from(list(ROUTES.values())),
    st.sampled_from([NO_VLAN, 5]),
)
lengths = st.one_of(st.integers(0, 8), st.integers(0, 9000))
mtus = st.sampled_from([256, 1024, 4096])


def frames(route: Route, what: What, length: int, flags: int = 0, **more: int) -> tuple[int, int]:
    """Packets and bytes of the frames that a capture has of such a message."""
    message = WireMessage(what, length, bytes(length), flags=flags, form=route.roce)
    message.source, message.destination = route.smac, route.dmac
    message.sgid, message.dgid, message.vlan = route.sgid, route.dgid, route.vlan
    message.source_qpn = message.target_qpn = 0x300
    for name, value in more.items():
        setattr(message, name, value)
    of_link = 0
    if len(route.dmac) == len(LID):
        message.form, of_link = INFINIBAND, VCRC_SIZE
    sizes = [frame.length - of_link for frame in frames_of(message)]
    return len(sizes), sum(sizes)


@settings(max_examples=300)
@given(
    route=routes,
    op=st.sampled_from(list(Op)),
    length=lengths,
    mtu=mtus,
    service=st.sampled_from(["RC", "UC", "XRC"]),
)
def test_a_request_counts_as_its_frames(
    route: Route, op: Op, length: int, mtu: int, service: str
) -> None:
    if op in ATOMICS or op in (Op.READ, Op.SEND_INV):
        service = service.replace("UC", "RC")
    length = 8 if op in ATOMICS else length
    packets = packets_of(length, mtu)
    srqn = 3 if service == "XRC" else None
    request = Request(op, route, 1, 2, 0, packets, length, reliable=service != "UC", srqn=srqn)
    flags = {"RC": RELIABLE, "UC": 0, "XRC": RELIABLE | XRC}[service]
    assert size_of(request) == frames(route, What.REQUEST, length, flags, op=op, packets=packets)


@settings(max_examples=100)
@given(route=routes, length=lengths, mtu=mtus, kind=st.sampled_from(["read", "atomic", "ack"]))
def test_an_answer_counts_as_its_frames(route: Route, length: int, mtu: int, kind: str) -> None:
    payload = [memoryview(bytes(length))] if kind == "read" and length else []
    packets = packets_of(length, mtu)
    answer = Response(
        route, 2, 0, 0, 0, payload, 5 if kind == "atomic" else None, packets, kind == "read"
    )
    flags = RELIABLE | {"read": READ, "atomic": ATOMIC, "ack": 0}[kind]
    length = length if kind == "read" else 0
    assert size_of(answer) == frames(route, What.RESPONSE, length, flags, packets=packets)


@settings(max_examples=100)
@given(route=routes, length=st.integers(0, 4096), immediate=st.booleans())
def test_a_datagram_counts_as_its_frame(route: Route, length: int, immediate: bool) -> None:
    datagram = Datagram(route, 9, 2, 0, 0, b"", bytes(length), immediate=7 if immediate else None)
    flags = IMMEDIATE * immediate
    assert size_of(datagram) == frames(route, What.DATAGRAM, length, flags)


@pytest.mark.parametrize("op", [Op.SEND_IMM, Op.WRITE_IMM, Op.WRITE, Op.READ])
def test_the_parts_of_a_long_message_count_as_the_whole(op: Op) -> None:
    route, size, share = ROUTES["RoCE v1"], 10001, 4096
    asked = answered = (0, 0)
    for offset in range(0, size, share):
        length = min(share, size - offset)
        part = Part(offset, size, 1, begins=not offset, last=offset + length == size)
        packets = packets_of(length, 1024)
        request = Request(op, route, 1, 2, 0, packets, length, part=part)
        payload = [memoryview(bytes(length))] if op is Op.READ else []
        answer = Response(route, 2, 0, 0, 0, payload, None, packets, op is Op.READ, part=part)
        more = size_of(request), size_of(answer)
        asked = asked[0] + more[0][0], asked[1] + more[0][1]
        answered = answered[0] + more[1][0], answered[1] + more[1][1]
    flags = RELIABLE | READ * (op is Op.READ)
    whole = packets_of(size, 1024)
    assert asked == frames(route, What.REQUEST, size, RELIABLE, op=op, packets=whole)
    data = size if op is Op.READ else 0
    assert answered == frames(route, What.RESPONSE, data, flags, packets=whole)
