"""Work queue entries: what drivers write is understood, what nobody writes is refused."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.operations import Op
from bluebridge.device.mlx4.rings import work_requests
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.rdma.connected.atomics import MASK, operate
from bluebridge.device.rdma.work import WorkError
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote

READERS = (
    work_requests.ConnectedReader(),
    work_requests.DatagramReader(),
    work_requests.PacketReader(),
    work_requests.FrameReader(),
)


def header(opcode: int, ds: int) -> bytes:
    """A control segment."""
    return pack(">IIII", opcode, ds, 0, 0)


@given(st.binary(max_size=1024))
def test_garbage_never_raises_anything_else(raw: bytes) -> None:
    for reader in READERS:
        try:
            entry = reader.read(raw, 0)
        except WorkError:
            continue
        assert entry.length == sum(
            len(part) if isinstance(part, bytes) else part[2] for part in entry.parts
        )
    for _, _, length in work_requests.parse_receive(raw):
        assert 0 < length < 1 << 31


def test_empty_segments_and_inline_chunks() -> None:
    chunks = (
        inline(b"a" * 44) + inline(b"b" * 10) + pack(">IIQ", 0x80000000, 0, 0) + data((7, 8, 0))
    )
    entry = work_requests.parse_connected(header(SendOpcode.SEND, 0) + chunks + data((7, 8, 9)), 3)
    assert entry.parts == [b"a" * 44, b"b" * 10, (7, 8, 9)]
    assert entry.length == 63


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        header(SendOpcode.RDMA_WRITE, 1),
        header(SendOpcode.ATOMIC_CS, 2) + remote(0, 0),
        header(SendOpcode.MASKED_ATOMIC_CS, 3) + remote(0, 0) + bytes(16),
        header(SendOpcode.SEND, 2) + pack(">I", 0x80000020) + bytes(12),
        header(SendOpcode.LSO, 3) + bytes(32),
        header(0x1F, 1),
    ],
)
def test_entries_that_make_no_sense(raw: bytes) -> None:
    with pytest.raises(WorkError):
        work_requests.parse_connected(raw, 0)


def test_receive_list_ends_at_the_invalid_key() -> None:
    raw = data((1, 2, 3), (0x100, 0, 0), (4, 5, 6))
    raw = pack(">IIQ", 3, 1, 2) + pack(">IIQ", 0, 0x100, 0) + pack(">IIQ", 6, 4, 5)
    assert work_requests.parse_receive(raw) == [(1, 2, 3)]


@given(st.integers(0, MASK), st.integers(0, MASK), st.integers(0, MASK))
def test_masked_add_works_field_by_field(value: int, add: int, tops: int) -> None:
    result = operate(Op.MASKED_FETCH_ADD, value, (add, 0, tops, 0))
    carry, expected = 0, 0
    for bit in range(64):
        total = (value >> bit & 1) + (add >> bit & 1) + carry
        expected |= (total & 1) << bit
        carry = 0 if tops >> bit & 1 else total >> 1
    assert result == expected


@pytest.mark.parametrize("service", [ServiceType.RC, ServiceType.UC, ServiceType.UD])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(min_size=16, max_size=128), min_size=1, max_size=12))
def test_random_rings_are_survived(service: int, entries: list[bytes]) -> None:
    """Whatever stands in the ring, the device answers with completions and stays alive."""
    pair = Pair(service).connect()
    for entry in entries:
        slot = pair.qa.sent
        pair.a.host.poke(pair.qa.address + (slot << 7), bytes((entry[0] & 0x7F,)) + entry[1:])
        pair.qa.sent += 1
    pair.a.doorbell(pair.qa.qpn)
    pair.run(0.01)
    assert all(wc.send for wc in pair.a.completions(pair.qa))
    assert pair.a.query(0x22, pair.qa.qpn)


def test_garbage_entry_fails_the_queue_pair() -> None:
    pair = Pair().connect()
    pair.a.post_send(pair.qa, 0x1F, signalled=False)
    pair.a.post_send(pair.qa, SendOpcode.SEND, signalled=False)
    assert [wc.status for wc in pair.a.completions(pair.qa)] == [
        CompletionStatus.LOCAL_QP_OP_ERR,
        CompletionStatus.WR_FLUSH_ERR,
    ]


def test_ring_that_vanished_is_reported_once() -> None:
    pair = Pair().connect()
    qp = pair.a.adapter.qps.get(pair.qa.qpn)
    assert qp is not None
    assert isinstance(qp.sq, SendRing)
    qp.sq.buffer.pages[:] = [1 << 50] * len(qp.sq.buffer.pages)
    pair.a.doorbell(pair.qa.qpn)
    pair.a.doorbell(pair.qa.qpn)
    assert len(pair.a.events(0x05)) == 1


@pytest.mark.parametrize("place", [0, 7], ids=["owner", "length"])
def test_an_entry_that_changes_while_it_is_read_is_refused(place: int) -> None:
    """A guest that rewrites an entry while it is read gets an error, not the rewritten entry."""
    pair = Pair().connect()
    host = pair.a.host
    original = host.read

    def hostile(address: int, length: int, what: What, obj: int = 0) -> bytes:
        raw = bytearray(original(address, length, what, obj))
        if what is What.SQ_WQE:
            raw[place] ^= 0x80 if place == 0 else 1
        return bytes(raw)

    host.read = hostile  # type: ignore[method-assign]
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"x"))
    assert pair.a.completions(pair.qa)[0].status == CompletionStatus.LOCAL_QP_OP_ERR
