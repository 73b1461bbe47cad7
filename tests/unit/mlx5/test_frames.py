"""Frames from SQ to RQ of two ConnectX-5: completions, checksums, tags, large sends, events."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.frames.frame import FrameHeaders, ones_sum
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import QueueState
from bluebridge.device.layout.mlx5.cqe import CQE, Checked, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import EQE, EventType
from bluebridge.device.layout.mlx5.init_segment import SEND_DOORBELL
from bluebridge.device.layout.mlx5.objects import RqField
from bluebridge.device.layout.mlx5.port_registers import (
    IEEE_802_3,
    PMTU,
    PPCNT,
    RFC_2819,
    CounterGroup,
)
from bluebridge.device.layout.mlx5.registers import RegisterId
from bluebridge.device.layout.mlx5.wqe import EthernetFlag, SendOpcode
from bluebridge.device.layout.net.ethernet import PAUSE, PAUSE_OPCODE
from bluebridge.device.mlx5.objects.keys import PORTION
from bluebridge.device.mlx5.ports.vport import DEFAULT_MTU, FCS_BYTES
from bluebridge.device.mlx5.rings.clock import clock
from tests.models.mlx5_node import (
    LOG_CQ,
    LOG_RQ,
    LOG_SQ,
    SIGNALLED,
    VECTOR,
    Mlx5Node,
    Queue,
    ethernet,
    opcode_of,
    syndrome_of,
)
from tests.models.mlx5_pairs import Pair
from tests.models.mlx5_queue_node import QueueNode

BOTH = int(EthernetFlag.L3 | EthernetFlag.L4)


@pytest.fixture(params=[Mlx5Node, QueueNode], ids=["tables", "registers"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Guests whose commands run by the table of rules, or through BAR0."""
    return Pair(request.param)


def received(node: Mlx5Node, rq: Queue, address: int) -> tuple[bytes, bytes]:
    """The one completion of an RQ, and the bytes that came."""
    (cqe,) = node.completions(rq)
    assert opcode_of(cqe) is CqeOpcode.RESPONSE_SEND, cqe.hex()
    return cqe, node.host.peek(address, CQE.get(cqe, "length"))


@pytest.mark.parametrize("inline", [0, 2, 18, 20])
def test_a_frame_arrives_and_both_sides_have_a_completion(pair: Pair, inline: int) -> None:
    buffer = pair.b.post_receive(pair.rq)
    frame = pair.frame(bytes(range(100)))
    pair.a.send(pair.sq, frame, inline=inline)
    cqe, arrived = received(pair.b, pair.rq, buffer)
    assert arrived == frame
    assert CQE.get(cqe, "wqe_counter") == 0
    (sent,) = pair.a.completions(pair.sq)
    assert (opcode_of(sent), CQE.get(sent, "qpn")) == (CqeOpcode.REQUEST, pair.sq.number)
    assert CQE.get(sent, "wqe_opcode") == SendOpcode.SEND


def test_both_completions_have_the_time_of_the_frame(pair: Pair) -> None:
    """Their stamps are the adapter's clock, and a frame leaves before it arrives."""
    pair.b.post_receive(pair.rq)
    before = clock()
    pair.a.send(pair.sq, pair.frame(bytes(100)))
    after = clock()
    (sent,), (came,) = pair.a.completions(pair.sq), pair.b.completions(pair.rq)
    assert before <= CQE.get(sent, "timestamp") <= CQE.get(came, "timestamp") <= after


def test_the_rings_go_round(pair: Pair) -> None:
    """Counters run on where entries start again, and the owner bit of completions changes."""
    for number in range(3 << max(LOG_SQ, LOG_CQ)):
        buffer = pair.b.post_receive(pair.rq, address=0x100000)
        frame = pair.frame(number.to_bytes(2, "big") * 50)
        pair.a.send(pair.sq, frame)
        cqe, arrived = received(pair.b, pair.rq, buffer)
        assert arrived == frame
        assert CQE.get(cqe, "wqe_counter") == number
        (sent,) = pair.a.completions(pair.sq)
        assert CQE.get(sent, "wqe_counter") == number


def test_a_long_entry_wraps_at_the_end_of_the_ring(pair: Pair) -> None:
    for _ in range((1 << LOG_SQ) - 1):
        pair.a.wqe(pair.sq, b"", SendOpcode.NOP)
    pair.a.ring(pair.sq)
    assert len(pair.a.completions(pair.sq)) == (1 << LOG_SQ) - 1
    buffer = pair.b.post_receive(pair.rq)
    frame = pair.frame(bytes(range(200)))
    pair.a.send(pair.sq, frame, inline=150)
    assert received(pair.b, pair.rq, buffer)[1] == frame


def test_checksums_are_computed_and_told(pair: Pair) -> None:
    buffer = pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.udp(b"data" * 30), checksums=BOTH)
    cqe, arrived = received(pair.b, pair.rq, buffer)
    headers = FrameHeaders(arrived)
    assert headers.header_is_good(arrived)
    assert headers.transport_is_good(arrived)
    assert CQE.get(cqe, "checked") == Checked.L2 | Checked.L3 | Checked.L4
    assert CQE.get(cqe, "l3") == 2
    assert CQE.get(cqe, "l4") == 2


@pytest.mark.parametrize("good", [True, False], ids=["computed", "as-it-is"])
@pytest.mark.parametrize("size", [100, 101])
def test_the_sum_covers_the_packet_from_its_network_header(
    pair: Pair, good: bool, size: int
) -> None:
    """Linux `en_rx.c: mlx5e_handle_csum` continues with it: "hw csum failure" otherwise."""
    buffer = pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.udp(bytes(range(size))), checksums=BOTH if good else 0)
    cqe, arrived = received(pair.b, pair.rq, buffer)
    wanted = ones_sum(arrived[14:])
    assert CQE.get(cqe, "checksum") % 0xFFFF == wanted % 0xFFFF
    assert bool(CQE.get(cqe, "checked") & Checked.L4) is good


def test_padding_is_not_in_the_sum(pair: Pair) -> None:
    """Drivers add what stands behind the packet themselves (`mlx5e_skb_csum_fixup`)."""
    packet = pair.udp(bytes(range(60)))
    for checksums in (BOTH, 0):
        buffer = pair.b.post_receive(pair.rq)
        pair.a.send(pair.sq, packet + b"padding", checksums=checksums)
        cqe, arrived = received(pair.b, pair.rq, buffer)
        assert len(arrived) == len(packet) + 7
        wanted = ones_sum(arrived[14 : len(packet)])
        assert CQE.get(cqe, "checksum") % 0xFFFF == wanted % 0xFFFF


def test_a_tag_is_stripped_or_stays(pair: Pair) -> None:
    tag = b"\x81\0\x60\x05"
    for strip in (True, False):
        buffer = pair.b.post_receive(pair.rq)
        pair.a.send(pair.sq, pair.udp(b"x" * 60, tag))
        cqe, arrived = received(pair.b, pair.rq, buffer)
        assert arrived == pair.udp(b"x" * 60, b"" if strip else tag)
        assert CQE.get(cqe, "vlan_present") == int(strip)
        assert CQE.get(cqe, "vlan") == (0x6005 if strip else 0)
        ready = QueueState.RDY
        pair.b.modify_rq(pair.rq.number, ready, ready, RqField.VLAN_STRIP, no_vlan_strip=1)


def test_a_tag_is_inserted(pair: Pair) -> None:
    buffer = pair.b.post_receive(pair.rq)
    frame = pair.udp(b"x" * 60)
    data = pack(">IIQ", len(frame), pair.a.key, pair.a.memory(frame))
    pair.a.wqe(pair.sq, ethernet(insert=0x2007) + data)
    pair.a.ring(pair.sq)
    cqe, arrived = received(pair.b, pair.rq, buffer)
    assert arrived == frame
    assert CQE.get(cqe, "vlan") == 0x2007


def tcp_header(pair: Pair) -> bytes:
    """The headers of a large send, as Linux hands them over."""
    ip = pack(">BBHHHBBH8s", 0x45, 0, 0, 7, 0, 64, 6, 0, b"\x0a\0\0\1\x0a\0\0\2")
    tcp = pack(">HHIIBBHHH", 1000, 2000, 100, 0, 0x50, 0x18, 512, 0, 0)
    return pair.b.mac + pair.a.mac + b"\x08\0" + ip + tcp


def test_a_large_send_is_cut_and_each_frame_has_its_sum(pair: Pair) -> None:
    buffers = [pair.b.post_receive(pair.rq) for _ in range(4)]
    payload = bytes(range(256)) * 14
    data = pack(">IIQ", len(payload), pair.a.key, pair.a.memory(payload))
    pair.a.wqe(pair.sq, ethernet(tcp_header(pair), mss=1000) + data, SendOpcode.LSO)
    pair.a.ring(pair.sq)
    cqes = pair.b.completions(pair.rq)
    frames = [
        pair.b.host.peek(buffer, CQE.get(cqe, "length"))
        for buffer, cqe in zip(buffers, cqes, strict=True)
    ]
    assert b"".join(frame[54:] for frame in frames) == payload
    for frame, cqe in zip(frames, cqes, strict=True):
        assert FrameHeaders(frame).transport_is_good(frame)
        assert CQE.get(cqe, "checksum") % 0xFFFF == ones_sum(frame[14:]) % 0xFFFF
    assert len(pair.a.completions(pair.sq)) == 1


@pytest.mark.parametrize("version", [4, 6])
def test_datagrams_are_cut_too(pair: Pair, version: int) -> None:
    """Linux `en_accel/en_accel.h: mlx5e_udp_gso_handle_tx_skb`."""
    buffers = [pair.b.post_receive(pair.rq) for _ in range(3)]
    payload = bytes(range(251)) * 10
    if version == 4:
        ip = pack(">BBHHHBBH8s", 0x45, 0, 0, 7, 0, 64, 17, 0, b"\x0a\0\0\1\x0a\0\0\2")
    else:
        ip = pack(">IHBB32s", 6 << 28, 0, 17, 64, bytes(range(32)))
    kind = b"\x08\0" if version == 4 else b"\x86\xdd"
    header = pair.b.mac + pair.a.mac + kind + ip + pack(">HHHH", 1000, 2000, 1008, 0x1234)
    data = pack(">IIQ", len(payload), pair.a.key, pair.a.memory(payload))
    pair.a.wqe(pair.sq, ethernet(header, mss=1000) + data, SendOpcode.LSO)
    pair.a.ring(pair.sq)
    cqes = pair.b.completions(pair.rq)
    frames = [
        pair.b.host.peek(buffer, CQE.get(cqe, "length"))
        for buffer, cqe in zip(buffers, cqes, strict=True)
    ]
    start = len(header)
    assert b"".join(frame[start:] for frame in frames) == payload
    for frame, cqe in zip(frames, cqes, strict=True):
        assert int.from_bytes(frame[start - 4 : start - 2], "big") == len(frame) - start + 8
        assert FrameHeaders(frame).header_is_good(frame)
        assert FrameHeaders(frame).transport_is_good(frame)
        assert CQE.get(cqe, "checksum") % 0xFFFF == ones_sum(frame[14:]) % 0xFFFF


def test_a_completion_interrupts_a_queue_that_asked(pair: Pair) -> None:
    cq = pair.rq.cq
    assert cq is not None
    pair.b.host.take_interrupts()
    for armed in (False, True, False):
        if armed:
            pair.b.arm(cq)
        pair.b.post_receive(pair.rq)
        pair.a.send(pair.sq, pair.frame(bytes(60)))
        events = pair.b.events()
        assert [event[1] for event in events] == [EventType.COMPLETION] * armed
        assert pair.b.host.take_interrupts() == [VECTOR] * armed
        cq.sn += armed
        pair.b.completions(pair.rq)


def test_what_came_before_the_request_interrupts_at_once(pair: Pair) -> None:
    pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.frame(bytes(60)))
    assert pair.rq.cq is not None
    pair.b.arm(pair.rq.cq)
    assert len(pair.b.events()) == 1


def test_entries_without_a_wish_for_it_complete_only_in_error(pair: Pair) -> None:
    pair.b.post_receive(pair.rq)
    pair.a.wqe(pair.sq, b"", SendOpcode.NOP, flags=0)
    pair.a.wqe(pair.sq, b"", SendOpcode.NOP, flags=SIGNALLED)
    pair.a.ring(pair.sq)
    (cqe,) = pair.a.completions(pair.sq)
    assert CQE.get(cqe, "wqe_counter") == 1


def test_a_frame_without_a_receive_is_counted(pair: Pair) -> None:
    pair.b.adapter.objects.port.flow.sends = False  # else the frames wait for receives
    number = pair.b.make(Opcode.ALLOC_Q_COUNTER)
    ready = QueueState.RDY
    pair.b.modify_rq(pair.rq.number, ready, ready, RqField.COUNTER_SET, counter_set=number)
    for _ in range(1 << LOG_RQ):
        pair.b.post_receive(pair.rq, address=0x100000)
    for _ in range((1 << LOG_RQ) + 3):
        pair.a.send(pair.sq, pair.frame(bytes(60)))
    query = bytes(0x1F) + bytes((number,))
    answer = pair.b.command(Opcode.QUERY_Q_COUNTER, query)
    assert int.from_bytes(answer[0x30:0x34], "big") == 3


def test_an_error_flushes_and_the_queue_starts_again(pair: Pair) -> None:
    """Linux `en/reporter_tx.c: mlx5e_tx_reporter_err_cqe_recover`."""
    pair.a.wqe(pair.sq, ethernet() + pack(">IIQ", 60, 0xBAD00, 0))
    pair.a.wqe(pair.sq, b"", SendOpcode.NOP)
    pair.a.ring(pair.sq)
    failed, flushed = pair.a.completions(pair.sq)
    assert opcode_of(failed) is CqeOpcode.REQUEST_ERROR
    assert [syndrome_of(cqe) for cqe in (failed, flushed)] == [
        Syndrome.LOCAL_PROT_ERR,
        Syndrome.WR_FLUSH_ERR,
    ]
    queried = pair.a.command(Opcode.QUERY_SQ, number=pair.sq.number)
    assert queried[0x21] >> 4 == QueueState.ERR
    pair.a.modify_sq(pair.sq.number, QueueState.ERR, QueueState.RST)
    pair.a.modify_sq(pair.sq.number, QueueState.RST, QueueState.RDY)
    pair.sq.posted = 0
    buffer = pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.frame(b"again" * 20))
    assert received(pair.b, pair.rq, buffer)[1] == pair.frame(b"again" * 20)


@pytest.mark.parametrize("paused", [False, True], ids=["in-turns", "paused"])
def test_a_queue_that_started_anew_waits_for_its_doorbell(pair: Pair, paused: bool) -> None:
    """Entries of before are forgotten, though the doorbell record still counts them."""
    for _ in range(100):  # more than one turn takes
        pair.a.wqe(pair.sq, b"", SendOpcode.NOP, flags=0)
    port = pair.a.adapter.objects.port
    port.flow.paused = paused
    pair.a.store(SEND_DOORBELL, pack(">II", 0, pair.sq.number << 8))
    pair.a.modify_sq(pair.sq.number, QueueState.RDY, QueueState.RST)
    pair.a.modify_sq(pair.sq.number, QueueState.RST, QueueState.RDY)
    for _ in range(1 << LOG_SQ):  # new entries, of which software has not told yet
        pair.a.wqe(pair.sq, b"", SendOpcode.NOP)
    if paused:
        port.flow.obeys = True
        port.flow.receive(bytes(PAUSE.pack(opcode=PAUSE_OPCODE)))
    pair.a.host.run()
    assert pair.a.completions(pair.sq) == []
    pair.sq.posted = 0
    pair.a.wqe(pair.sq, b"", SendOpcode.NOP)
    pair.a.ring(pair.sq)
    (cqe,) = pair.a.completions(pair.sq)
    assert CQE.get(cqe, "wqe_counter") == 0


def test_a_frame_beyond_the_mtu_is_dropped_and_costs_no_receive(pair: Pair) -> None:
    """The port counts it as Linux `core/en_stats.c` reads it: rx_oversize_pkts_phy."""

    def counter(group: CounterGroup, layout: Struct, name: str) -> int:
        data = pair.b.register(RegisterId.PPCNT, bytes(PPCNT.pack(group=group)), write=False)
        return layout.get(PPCNT.get_raw(data, "counters"), name)

    buffer = pair.b.post_receive(pair.rq)
    longest = DEFAULT_MTU - FCS_BYTES
    head = len(pair.frame(b""))
    pair.a.send(pair.sq, pair.frame(bytes(longest + 1 - head)))
    assert pair.b.completions(pair.rq) == []
    assert counter(CounterGroup.RFC_2819, RFC_2819, "oversize_packets") == 1
    assert counter(CounterGroup.IEEE_802_3, IEEE_802_3, "frame_too_long_errors") == 1
    pair.a.send(pair.sq, pair.frame(bytes(longest - head)))
    assert len(received(pair.b, pair.rq, buffer)[1]) == longest
    pair.b.register(RegisterId.PMTU, bytes(PMTU.pack(port=1, admin=2048)), write=True)
    buffer = pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.frame(bytes(longest + 1 - head)))
    assert len(received(pair.b, pair.rq, buffer)[1]) == longest + 1


def test_a_key_to_pages_reaches_only_those(pair: Pair) -> None:
    page = pair.b.host.allocate(4096)
    other = pair.b.host.allocate(4096)
    key = pair.b.make_key([other, page])
    pair.b.post_receive(pair.rq, address=4096, key=key, size=1024)
    frame = pair.frame(b"z" * 70)
    pair.a.send(pair.sq, frame)
    assert pair.b.host.peek(page, len(frame)) == frame
    pair.b.completions(pair.rq)
    pair.b.post_receive(pair.rq, address=2 * 4096 - 10, key=key, size=1024)
    pair.a.send(pair.sq, frame)
    (cqe,) = pair.b.completions(pair.rq)
    assert syndrome_of(cqe) == Syndrome.LOCAL_PROT_ERR


def test_a_key_of_many_pages_is_made_in_portions_and_reaches_all(pair: Pair) -> None:
    """A frame crosses from the last page of one portion into the first one of the next."""
    page, other = pair.a.memory(4096), pair.a.memory(4096)
    key = pair.a.make_key([*[page] * PORTION, *[other] * PORTION, page])
    if type(pair.a) is Mlx5Node:
        assert pair.a.portions == 3
    frame = pair.frame(bytes(range(100)))
    pair.a.host.poke(page + 4096 - 20, frame[:20])
    pair.a.host.poke(other, frame[20:])
    buffer = pair.b.post_receive(pair.rq)
    pair.a.wqe(pair.sq, ethernet() + pack(">IIQ", len(frame), key, 4096 * PORTION - 20))
    pair.a.ring(pair.sq)
    assert received(pair.b, pair.rq, buffer)[1] == frame


def test_link_events_tell_of_the_port(pair: Pair) -> None:
    pair.b.close()
    pair.b.open()
    events = pair.b.events()
    assert [(event[1], EQE.get(event, "sub_type"), event[0x28] >> 4) for event in events] == [
        (EventType.PORT_CHANGE, 1, 1),
        (EventType.PORT_CHANGE, 4, 1),
    ]


def test_a_queue_that_is_gone_gets_nothing(pair: Pair) -> None:
    """The TIR that spreads frames over it goes first."""
    buffer = pair.b.post_receive(pair.rq)
    assert pair.b.status(Opcode.DESTROY_RQ, number=pair.rq.number) is Status.BAD_RES_STATE
    pair.b.command(Opcode.DESTROY_TIR, number=pair.tir)
    pair.b.command(Opcode.DESTROY_RQ, number=pair.rq.number)
    pair.a.send(pair.sq, pair.frame(b"q" * 60))
    assert pair.b.completions(pair.rq) == []
    assert pair.b.host.peek(buffer, 60) == bytes(60)
    assert pair.b.status(Opcode.DESTROY_RQ, number=pair.rq.number) == Status.BAD_RES


def test_a_full_completion_queue_breaks(pair: Pair) -> None:
    for _ in range((1 << LOG_CQ) + 2):
        pair.a.wqe(pair.sq, b"", SendOpcode.NOP)
        pair.a.ring(pair.sq)
    pair.a.host.run()
    kinds = [event[1] for event in pair.a.events()]
    assert kinds == [EventType.CQ_ERROR, EventType.WQ_CATASTROPHIC]
