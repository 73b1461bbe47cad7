"""Ethernet queue pairs: offloads on the way out, steering and stripping on the way in."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.frames.frame import ones_sum
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE, CompletionStatus, FrameStatus
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, FORCE_LOOPBACK, IP_CSUM, TCP_UDP_CSUM
from tests.models.ethernet import BROADCAST, ethernet_qp, ip_frame, steer
from tests.models.hca_driver import ALL_RIGHTS
from tests.models.rdma_node import LOG_SQ, PD, SQ_SHIFT, Pair, SendOpcode, data, inline


def test_frame_is_padded_and_delivered(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 2048)])
    frame = pair.b.mac + pair.a.mac + b"\x08\x06" + b"arp"
    pair.post_send(SendOpcode.SEND, inline(frame))
    assert pair.sent() == [0]
    (got,) = pair.b.completions(pair.qb)
    assert got.length == 60
    assert pair.b.host.peek(target, 61) == frame.ljust(61, b"\0")
    counters = pair.a.port.counters, pair.b.port.counters
    assert (sum(counters[0].tx.frames), sum(counters[1].rx.octets)) == (1, 60)


def test_broadcast_strangers_and_missing_receives(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    for destination in (BROADCAST, b"\x01\0\x5e\0\0\1", b"\x02\x77\0\0\0\1", pair.a.mac):
        pair.post_recv([(key, target, 2048)])
        pair.post_send(SendOpcode.SEND, inline(destination + pair.a.mac + b"\x08\0"))
    assert len(pair.b.completions(pair.qb)) == 2
    assert pair.a.completions(pair.qa)
    counters = pair.b.port.counters
    assert (counters.filtered, counters.rx.dropped) == (2, 0)
    steer(pair.b, pair.qb.qpn, 1 << 31 | pair.qb.qpn)
    pair.post_send(SendOpcode.SEND, inline(b"\x02\x77\0\0\0\1" + pair.a.mac + b"\x08\0"))
    assert len(pair.b.completions(pair.qb)) == 1


def arrives(pair: Pair, destination: bytes, vlan: int | None = None) -> bool:
    """Whether a frame of the first guest reaches software of the second."""
    target, key = pair.b.memory(4096)
    tag = b"" if vlan is None else b"\x81\0" + vlan.to_bytes(2, "big")
    pair.post_recv([(key, target, 2048)])
    frame = destination + pair.a.mac + tag + b"\x08\0"
    pair.post_send(SendOpcode.SEND, inline(frame))
    return bool(pair.b.completions(pair.qb))


def test_multicast_filter_as_mlx4_en_programs_it(pair: Pair) -> None:
    wanted, other = b"\x01\0\x5e\0\0\1", b"\x33\x33\0\0\0\1"
    for address, clear, form in ((b"", 0, 1), (BROADCAST, 1 << 63, 0), (wanted, 0, 0)):
        value = clear | int.from_bytes(address, "big")
        pair.b.command(Opcode.SET_MCAST_FLTR, value, 1, form)
    assert arrives(pair, other)  # disabled: all pass
    pair.b.command(Opcode.SET_MCAST_FLTR, 0, 1, 2)
    assert [arrives(pair, to) for to in (BROADCAST, wanted, other, pair.b.mac)] == [
        True,
        True,
        False,
        True,
    ]
    steer(pair.b, pair.qb.qpn, 1 << 31 | pair.qb.qpn)
    assert arrives(pair, other)


def test_vlan_filter_as_mlx4_en_programs_it(pair: Pair) -> None:
    vlans = (0, 8, 33, 4095)
    assert all(arrives(pair, pair.b.mac, vlan) for vlan in vlans)
    bitmap = sum(1 << vlan for vlan in (0, 33)).to_bytes(512, "big")
    pair.b.command(Opcode.SET_VLAN_FLTR, bitmap, 1)
    assert [arrives(pair, pair.b.mac, vlan) for vlan in vlans] == [True, False, True, False]
    assert arrives(pair, pair.b.mac, 0xE000 | 33)  # priority bits are no part of the number
    assert arrives(pair, pair.b.mac)
    steer(pair.b, pair.qb.qpn, 1 << 31 | pair.qb.qpn)
    assert arrives(pair, pair.b.mac, 8)


def test_vlan_and_checksums_are_inserted_and_the_tag_is_stripped(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    source, lkey = pair.a.memory(4096)
    frame = ip_frame(b"payload of some length")
    frame[:12] = pair.b.mac + pair.a.mac
    pair.a.host.poke(source, frame)
    pair.post_recv([(key, target, 2048)])
    word1 = 0x2005 << 16 | 0x40 << 8 | 2
    flags = CQE_REQUEST | IP_CSUM | TCP_UDP_CSUM
    entry = pack(">IIII", SendOpcode.SEND, word1, flags, 0) + data((lkey, source, len(frame)))
    pair.a.host.poke(pair.qa.address, entry)
    pair.a.doorbell(pair.qa.qpn)
    (got,) = pair.b.completions(pair.qb)
    assert FRAME_CQE.get(got.raw, "cvlan_present") == 1
    assert FRAME_CQE.get(got.raw, "vlan_tag") == 0x2005
    assert FRAME_CQE.get(got.raw, "checksum") == 0xFFFF
    status = FrameStatus.IPV4 | FrameStatus.UDP | FrameStatus.IP_OK
    assert FRAME_CQE.get(got.raw, "status") == status
    assert got.length == len(frame)
    received = pair.b.host.peek(target, len(frame))
    assert ones_sum(received[14:34]) == 0
    assert received[42:] == frame[42:]


def test_long_entries_take_several_slots_and_wrap(pair: Pair) -> None:
    """mlx4_en uses slots of 64 bytes: an entry of 112 bytes takes two, and the last one wraps."""
    node = pair.a
    qp = ethernet_qp(node, 0x50, log_sq_stride=2, log_sq_size=4)
    target, key = pair.b.memory(4096)
    index = 0
    for count in range(20):
        pair.post_recv([(key, target, 2048)])
        frame = pair.b.mac + node.mac + b"\x08\0" + bytes((count,)) * 70
        raw = inline(frame)
        slots = 3 if count % 5 == 0 else 2
        raw += pack(">IIQ", 0, 0, 0) * ((slots * 64 - 32 - len(raw)) // 16)
        ds = (16 + len(raw)) // 16
        lap = index >> 4 & 1
        whole = pack(">IIII", lap << 31 | SendOpcode.SEND, ds, CQE_REQUEST, 0) + raw
        for at in range(0, len(whole), 16):
            place = ((index * 64) + at) % 1024
            node.host.poke(qp.address + place, whole[at : at + 16])
        following = index + slots
        stamp = (following >> 4 & 1 ^ 1) << 31 | 0x7FFFFFFF  # not valid yet
        node.host.poke(qp.address + (following % 16) * 64, pack(">I", stamp))
        node.doorbell(qp.qpn)
        (done,) = node.completions(qp)
        assert (done.status, done.index) == (0, index)
        assert len(pair.b.completions(pair.qb)) == 1
        assert pair.b.host.peek(target + 14, 70) == bytes((count,)) * 70
        index = following
    assert (LOG_SQ, SQ_SHIFT) == (4, 7)


def test_bad_frames_fail_the_sender_only(pair: Pair) -> None:
    pair.post_send(SendOpcode.SEND, inline(b"short"))
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR]
    target, key = pair.b.memory(4096)
    pair.post_recv([(key, target, 20)])
    other = ethernet_qp(pair.a, 0x51)
    pair.a.post_send(other, SendOpcode.SEND, inline(BROADCAST + pair.a.mac + b"\x08\0"))
    assert pair.b.statuses(pair.qb) == [CompletionStatus.LOCAL_LENGTH_ERR]


def test_loopback_is_for_those_who_ask(pair: Pair) -> None:
    """`ethtool -K loopback on` sets a flag; the self test repeats the destination instead."""
    target, key = pair.a.memory(4096)
    frame = pair.a.mac + bytes(6) + b"\x08\x06" + bytes(range(50))
    entry = inline(frame)
    for flags, immediate in (
        (CQE_REQUEST, 0),
        (CQE_REQUEST | FORCE_LOOPBACK, 0),
        (
            CQE_REQUEST | int.from_bytes(pair.a.mac[:2], "big") << 16,
            int.from_bytes(pair.a.mac[2:], "big"),
        ),
    ):
        pair.a.post_recv(pair.qa, [(key, target, 2048)])
        word0 = SendOpcode.SEND | (pair.qa.sent >> 4 & 1) << 31
        raw = pack(">IIII", word0, (16 + len(entry)) // 16, flags, immediate) + entry
        pair.a.host.poke(pair.qa.address + (pair.qa.sent << SQ_SHIFT), raw)
        pair.qa.sent += 1
        pair.a.doorbell(pair.qa.qpn)
    got = pair.a.completions(pair.qa)
    assert [wc.send for wc in got].count(False) == 2
    assert pair.a.host.peek(target, 64) == frame


def test_frames_wait_for_nobody_when_the_cable_is_out(pair: Pair) -> None:
    pair.a.port.plug(False)
    pair.post_send(SendOpcode.SEND, inline(BROADCAST + pair.a.mac + b"\x08\0"))
    assert pair.sent() == [0]
    assert pair.a.port.counters.tx.dropped == 1


@pytest.mark.parametrize(
    ("rights", "length", "pd", "good"),
    [
        (ALL_RIGHTS, (1 << 64) - 1, PD, True),
        (1, (1 << 64) - 1, PD, False),
        (ALL_RIGHTS, 16, PD, False),
        (ALL_RIGHTS, (1 << 64) - 1, PD + 1, False),
    ],
    ids=["it", "read-only", "short", "foreign"],
)
def test_buffers_of_an_mr_over_all_memory(
    pair: Pair, rights: int, length: int, pd: int, good: bool
) -> None:
    """A buffer as mlx4_en has for its rings, three that look like it, one of another domain."""
    node, key = pair.b, 0x7700
    entry = node.mpt(key, 0, length, 0, pd=pd, rights=rights, shift=0, physical=1)
    node.command(Opcode.SW2HW_MPT, bytes(entry), key >> 8)
    target = node.host.allocate(4096)
    node.post_recv(pair.qb, [(key, target, 2048)])
    frame = pair.b.mac + pair.a.mac + b"\x08\x06" + bytes(range(50))
    pair.post_send(SendOpcode.SEND, inline(frame))
    assert node.statuses(pair.qb) == ([0] if good else [CompletionStatus.LOCAL_PROT_ERR])
    assert (node.host.peek(target, 64) == frame) is good
    assert pair.b.port.counters.rx.dropped == (not good)
