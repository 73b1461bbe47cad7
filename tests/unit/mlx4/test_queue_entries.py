"""Work queue entries as drivers write them, and the forms of completion entries."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP, DevFlag
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import CQE, CompletionStatus
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.mlx4.rings import work_requests
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.rdma.connected.responder import MASK, operate
from bluebridge.device.rdma.work import WorkError
from bluebridge.device.rings.receive_ring import parse_receive
from tests.models.fake_host import FakeHost
from tests.models.hca_driver import COMP_EQN, UAR_PAGE, Driver
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote

READERS = (
    work_requests.ConnectedReader(FakeHost(), 0),
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
    for _, _, length in parse_receive(raw):
        assert 0 < length < 1 << 31


def test_empty_segments_and_inline_chunks() -> None:
    chunks = (
        inline(b"a" * 44) + inline(b"b" * 10) + pack(">IIQ", 0x80000000, 0, 0) + data((7, 8, 0))
    )
    raw = header(SendOpcode.SEND, 0) + chunks + data((7, 8, 9))
    entry = work_requests.ConnectedReader(FakeHost(), 0).read(raw, 3)
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
        work_requests.ConnectedReader(FakeHost(), 0).read(raw, 0)


def test_receive_list_ends_at_the_invalid_key() -> None:
    raw = data((1, 2, 3), (0x100, 0, 0), (4, 5, 6))
    raw = pack(">IIQ", 3, 1, 2) + pack(">IIQ", 0, 0x100, 0) + pack(">IIQ", 6, 4, 5)
    assert parse_receive(raw) == [(1, 2, 3)]


@given(st.integers(0, MASK), st.integers(0, MASK), st.integers(0, MASK))
def test_masked_add_works_field_by_field(value: int, add: int, tops: int) -> None:
    result = operate(Op.MASKED_FETCH_ADD, value, (add, 0, tops, 0))
    carry, expected = 0, 0
    for bit in range(64):
        total = (value >> bit & 1) + (add >> bit & 1) + carry
        expected |= (total & 1) << bit
        carry = 0 if tops >> bit & 1 else total >> 1
    assert result == expected


def test_garbage_entry_fails_the_queue_pair() -> None:
    pair = Pair().connect()
    pair.post_send(0x1F, signalled=False)
    pair.post_send(SendOpcode.SEND, signalled=False)
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR, CompletionStatus.WR_FLUSH_ERR]


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
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    assert pair.a.completions(pair.qa)[0].status == CompletionStatus.LOCAL_QP_OP_ERR


CQN = 0x90
LARGE = 64
LOG_SIZE = 3


class LargeDriver(Driver):
    """A driver that chooses 64-byte completions."""

    def __init__(self) -> None:
        super().__init__(features=Features(large_cqes=True))

    def init_mailbox(self) -> bytearray:
        """INIT_HCA with bit 30."""
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "eqe_cqe_size", 1 << 30)
        return mailbox


def make(driver: Driver) -> int:
    """SW2HW_CQ; where its ring is."""
    address, mtt = driver.buffer(LARGE << LOG_SIZE)
    driver.command(
        Opcode.SW2HW_CQ,
        bytes(
            CQC.pack(
                log_size=LOG_SIZE, uar=UAR_PAGE, eqn=COMP_EQN, mtt_addr=mtt,
                doorbell_record=driver.host.allocate(64, 64),
            )
        ),
        CQN,
    )  # fmt: skip
    return address


def plain(index: int) -> bytes:
    """An entry that a queue pair posts."""
    return bytes(CQE.pack(qpn=0x240, byte_count=index, wqe_index=index, opcode=8, is_send=1))


def test_large_entries_must_be_offered_first() -> None:
    for features, bit, status in ((True, 30, Status.OK), (False, 30, Status.BAD_PARAM),
                                  (True, 29, Status.BAD_PARAM)):  # fmt: skip
        driver = Driver(features=Features(large_cqes=features))
        flags = QUERY_DEV_CAP.get(driver.query(Opcode.QUERY_DEV_CAP), "flags_hi") << 32
        assert bool(flags & DevFlag.CQE_64B) == features
        mailbox = driver.init_mailbox()
        INIT_HCA.set(mailbox, "eqe_cqe_size", 1 << bit)
        assert driver.try_command(Opcode.INIT_HCA, bytes(mailbox))[0] == status


@pytest.mark.parametrize("together", [False, True])
def test_what_counts_is_the_second_half(together: bool) -> None:
    driver = LargeDriver().start()
    address = make(driver)
    queue = driver.completion_queue(CQN)
    for index in range(1 << LOG_SIZE):
        assert driver.host.peek(address + index * LARGE + LARGE - 1, 1) == b"\x80"
    entries = [plain(index) for index in range(6)]
    if together:
        queue.post_many(entries)
    else:
        for entry in entries:
            queue.post(entry)
    for index, entry in enumerate(entries):
        assert driver.host.peek(address + index * LARGE, LARGE) == bytes(32) + entry
    driver.host.poke(queue.record, (6).to_bytes(4, "big"))
    queue.post_many([plain(9)] * 4)
    owners = [driver.host.peek(address + index * LARGE + 63, 1)[0] & 0x80 for index in range(8)]
    assert owners == [0x80, 0x80, 0, 0, 0, 0, 0, 0]
