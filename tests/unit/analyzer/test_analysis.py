"""Events are assembled into work requests: how they were posted and what they caused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.cqe import ERROR_CQE, OPCODE_ERROR, CompletionStatus
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL, UAR_AREA_SIZE
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Tlp, Transfer, transfers
from bluebridge.host_tools.analyzer.analysis.assembly import assembled
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of, transactions
from bluebridge.host_tools.analyzer.analysis.triggers import BlueFlameStores, Trigger
from bluebridge.host_tools.analyzer.transaction import Transaction, pieces, split
from bluebridge.host_tools.analyzer.views import transactions as transaction_table
from bluebridge.host_tools.analyzer.views.traffic import Traffic
from bluebridge.host_tools.analyzer.views.work_requests import line, tree
from tests.models.analysis_log import CQN, EQN, PAGE, QPN, A, B, Sender
from tests.models.facts import with_fact

WORK = 1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT
ENTRY = bytes((0, 0, 0, 8, 0, 0, QPN, 3))
DOORBELL = bytes((0, 0, QPN, 0))

Post = Callable[[Sender], None]


def _assembled(folder: Path, *posts: Post) -> list[Transfer]:
    sender = Sender(folder)
    for post in posts:
        post(sender)
    sender.log.close()
    return list(transfers(folder))


def _roles(transfer: Transfer) -> list[str]:
    """Role and bytes of what crossed the buses, those of the peer in brackets."""
    return [
        f"({one.role.value} {one.length})" if one.remote else f"{one.role.value} {one.length}"
        for one in transfer.on_bus()
    ]


REST = ["(payload write 8)", "CQE 32"]


@pytest.mark.parametrize(
    ("by", "inline", "expected"),
    [
        ("doorbell", True, ["doorbell 4", "WQE read 48", *REST]),
        ("doorbell", False, ["doorbell 4", "WQE read 48", "payload read 8", *REST]),
        ("blueflame", True, ["BlueFlame write 64", *REST]),
        ("fallback", True, ["BlueFlame write 64", "WQE read 48", *REST]),
    ],
)
def test_transactions_of_a_send(tmp_path: Path, by: str, inline: bool, expected: list[str]) -> None:
    (found,) = _assembled(tmp_path, lambda sender: sender.post(8, by=by, inline=inline))
    assert _roles(found) == expected
    assert found.posted_by.value.lower() == by
    assert (found.opcode, found.length, found.inline) == ("RDMA_WRITE", 8, 8 if inline else 0)
    assert (found.device, found.qpn, found.peer, found.status) == ("a", 0x48, "b", "OK")
    assert found.notes == (
        ["BlueFlame page 0: its page is 128: fetched instead"] if by == "fallback" else []
    )


def test_lines_of_an_entry_are_one_write_each(tmp_path: Path) -> None:
    """200 bytes make an entry of 240, four lines of eight stores."""
    (found,) = _assembled(tmp_path, lambda sender: sender.post(200, by="blueflame"))
    lines = found.of(Role.BLUEFLAME)
    assert [(line.length, line.stores) for line in lines] == [(64, 8)] * 4
    assert bytes(lines[0].data[4:7]) == b"\0\0\x48"


def test_buffers_that_follow_each_other_hold_two_entries(tmp_path: Path) -> None:
    """The first buffer is full and adjacent to the second."""
    found = _assembled(
        tmp_path,
        lambda sender: sender.post(208, by="blueflame"),
        lambda sender: sender.post(208, by="blueflame"),
    )
    assert [each.count(Role.BLUEFLAME) for each in found] == [4, 4]


def test_the_tree_of_causes(tmp_path: Path) -> None:
    """The parent of each transaction is its cause, on both machines."""
    (found,) = _assembled(tmp_path, lambda sender: sender.post(8, inline=False, announced=True))
    parts = found.transactions
    tree = [f"{'.' * depth}{parts[place].role.value}" for place, depth in found.tree()]
    assert tree == [
        "doorbell", ".WQE read", "..payload read", "..request", "...payload write", "...response",
        "....CQE", ".....EQE", "......interrupt",
    ]  # fmt: skip


def test_one_doorbell_for_several_entries(tmp_path: Path) -> None:
    """Entries that are posted together have one doorbell, at the first."""

    def chain(sender: Sender) -> None:
        sender.doorbell()
        for _ in range(3):
            sender.fetch(sender.entry(8, inline=True, blueflame=False))
            sender.carry_out(8, inline=True)
        sender.post()

    assert [each.posted_by for each in _assembled(tmp_path, chain)] == [
        PostedBy.DOORBELL, PostedBy.FOUND, PostedBy.FOUND, PostedBy.DOORBELL,
    ]  # fmt: skip


def test_a_doorbell_that_comes_after_the_fetch(tmp_path: Path) -> None:
    """The entry is fetched after an earlier doorbell, before its own arrives."""

    def early(sender: Sender) -> None:
        sender.post()
        sender.fetch(sender.entry(8, inline=True, blueflame=False))
        sender.carry_out(8, inline=True)
        sender.doorbell()
        sender.post()

    found = _assembled(tmp_path, early)
    assert [(each.posted_by, each.count(Role.DOORBELL)) for each in found] == [
        (PostedBy.DOORBELL, 1)
    ] * 3


def test_stores_that_come_after_the_fetch(tmp_path: Path) -> None:
    """The entry is fetched from the ring before its stores arrive."""

    def early(sender: Sender) -> None:
        sender.post(by="blueflame")
        entry = sender.entry(100, inline=True, blueflame=True)
        sender.fetch(entry)
        sender.carry_out(100, inline=True)
        sender.stores(entry)
        sender.post(by="blueflame")

    found = _assembled(tmp_path, early)
    assert [each.posted_by for each in found] == [
        PostedBy.BLUEFLAME,
        PostedBy.EARLY,
        PostedBy.BLUEFLAME,
    ]
    assert [each.count(Role.BLUEFLAME) for each in found] == [1, 3, 1]


def test_work_requests_are_given_out_while_the_log_is_read(tmp_path: Path) -> None:
    """Work requests are given out while the log is read: memory is bounded."""
    sender = Sender(tmp_path)
    sender.index = first = 0xFF00  # the 16 bits that completions have of it wrap
    for _ in range(2000):
        sender.post()
    sender.log.close()
    reader = LogReader(tmp_path)
    read = 0
    ahead: list[int] = []

    def counted() -> Iterator[Event]:
        nonlocal read
        for event in reader:
            read += 1
            yield event

    for number, transfer in enumerate(assembled(counted(), reader.meta["devices"])):
        assert (transfer.number, transfer.index) == (number, first + number)
        assert len(transfer.on_bus()) == 4
        ahead.append(read - transfer.transactions[-1].number)
    assert len(ahead) == 2000
    assert max(ahead) < 1000


def test_a_log_that_begins_in_the_middle(tmp_path: Path) -> None:
    """Events of a work request before the log's begin belong to none and raise nothing."""
    sender = Sender(tmp_path)
    sender.fetch(sender.entry(8, inline=True, blueflame=False))
    sender.carry_out(8, inline=True)
    sender.post()
    sender.log.close()
    reader = LogReader(tmp_path)
    events = list(reader)
    for first in range(len(events)):
        for found in assembled(events[first:], reader.meta["devices"]):
            assert found.device == "a"
            assert list(found.tree())


def test_rows_keep_the_order(tmp_path: Path) -> None:
    """A line has the place of its first store."""
    sender = Sender(tmp_path)
    sender.post(200, by="blueflame")
    sender.log.record(A, Kind.IRQ, 0, 3, 0, b"")
    sender.log.close()
    rows = list(transactions(LogReader(tmp_path)))
    assert [row.number for row in rows] == sorted(row.number for row in rows)
    writes = [row for row in rows if row.tlp is Tlp.MEMORY_WRITE and not row.upstream]
    assert [row.length for row in writes] == [64] * 4


def test_completions_end_at_multiples() -> None:
    """Figure 4.5: a read of 496 bytes behind the first 16 is answered by 240 and 256."""
    assert [*split(0x1010, 496)] == [240, 256]
    for address, length in ((0x1010, 496), (0x1000, 0), (0x1001, 255), (0x1001, 256), (3, 1000)):
        assert pieces(address, length) == len([*split(address, length)])


def test_receives_that_are_flushed_later_belong_to_no_work_request(tmp_path: Path) -> None:
    """A timer writes them, while the log still names the last work request."""

    def flushed(sender: Sender) -> None:
        sender.post()
        entry = ERROR_CQE.pack(qpn=QPN, syndrome=CompletionStatus.WR_FLUSH_ERR, opcode=OPCODE_ERROR)
        sender.log.record(B, Kind.DMA_WRITE, 0, 0x4000, 32, bytes(entry), What.CQE, CQN)

    (found,) = _assembled(tmp_path, flushed)
    assert found.count(Role.CQE) == 1


@pytest.mark.parametrize(("device", "expected"), [("a", Role.DOORBELL), ("a.ntb4", Role.WINDOW)])
def test_windows_of_bridges_are_no_doorbells(device: str, expected: Role) -> None:
    event = Event(0, 0.0, device, Kind.MMIO_WRITE, 2, What.OTHER, 0, SEND_DOORBELL, 4, DOORBELL)
    assert transaction_of(event).role is expected


EVENTS = st.builds(
    Event,
    st.just(0),
    st.floats(0, 10),
    st.sampled_from(("a", "b", "a/2")),
    st.sampled_from(list(Kind)),
    st.sampled_from((0, 2)),
    st.sampled_from(list(What)),
    st.sampled_from((0, QPN, CQN, EQN)),
    st.one_of(
        st.integers(0, 1 << 64),
        st.integers(0, 8).map(lambda at: UAR_AREA_SIZE + 8 * at),
        st.just(PAGE * PAGE_SIZE + SEND_DOORBELL),
    ),
    st.integers(0, 1 << 32),
    st.one_of(st.binary(max_size=64), st.sampled_from((ENTRY, DOORBELL))),
    st.sampled_from((0, WORK, WORK + 1, 1 << 63)),
)


@given(st.lists(EVENTS, max_size=60))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_is_in_the_log_can_be_assembled(events: list[Event]) -> None:
    """Events in any order: nothing raises, each transaction is once in a tree."""
    for number, event in enumerate(events):
        event.number = number
        with_fact(event)
    for found in assembled(events, ["a", "b"]):
        places = [place for place, _ in found.tree()]
        assert sorted(places) == list(range(len(found.transactions)))
        assert list(tree(found, None))
        assert line(found, None)
    assert list(transaction_table.lines(transactions(events))) is not None
    traffic = Traffic(["a", "b"])
    traffic.add(events)
    assert list(traffic.lines())


PLACE = 0x882000


def entry(place: int, qpn: int, index: int) -> list[Transaction]:
    """The sixteen stores of an entry of 128 bytes."""
    head = bytes((0, index >> 8, index & 0xFF, 8)) + (qpn << 8 | 8).to_bytes(4, "big")
    return [
        Transaction(
            0, 0.0, "a", Tlp.MEMORY_WRITE, Role.BLUEFLAME, False, place + at, 8,
            head if at == 0 else bytes(8),
        )
        for at in range(0, 128, 8)
    ]  # fmt: skip


def lines_of(found: list[Trigger]) -> dict[tuple[int, int | None], list[tuple[int, int, int]]]:
    """Lines by queue pair and index: place, bytes, stores."""
    return {
        (each.qpn, each.index): [(line.address, line.length, line.stores) for line in each.writes]
        for each in found
    }


def test_interleaved_stores_to_two_registers_of_a_page() -> None:
    """mlx4_en has a register of one page for each of its rings."""
    stores = BlueFlameStores()
    found: list[Trigger] = []
    for pair in zip(entry(PLACE, 0x208, 7), entry(PLACE + 512, 0x209, 3), strict=True):
        for store in pair:
            burst, begins, _ = stores.add(store)
            if begins and store.address % 512 == 0:
                found.append(burst)
    assert lines_of(found) == {
        (0x208, 7): [(PLACE, 64, 8), (PLACE + 64, 64, 8)],
        (0x209, 3): [(PLACE + 512, 64, 8), (PLACE + 576, 64, 8)],
    }


def test_an_incomplete_entry_is_not_continued() -> None:
    """Its sender stopped in the middle; the next entry begins at the same address."""
    stores = BlueFlameStores()
    for store in entry(PLACE, 0x208, 7)[:4]:
        stores.add(store)
    bursts = [stores.add(store)[0] for store in entry(PLACE, 0x208, 8)]
    assert lines_of(bursts[-1:]) == {(0x208, 8): [(PLACE, 64, 8), (PLACE + 64, 64, 8)]}


def test_a_note_about_another_object_is_of_no_work_request(tmp_path: Path) -> None:
    """A completion queue with the number of the queue pair whose doorbell was just rung."""
    sender = Sender(tmp_path)
    entry = sender.entry(8, inline=True, blueflame=False)
    sender.doorbell()
    sender.log.tell(A, Fact.CQ_LOST, cqn=QPN, reason="gone")
    sender.log.tell(A, Fact.SEND_QUEUE_LOST, qpn=QPN, reason="gone")
    sender.fetch(entry)
    sender.carry_out(8, inline=True)
    sender.log.close()
    (found,) = transfers(tmp_path)
    assert [one.told.fact for one in found.noted if one.told] == [Fact.SEND_QUEUE_LOST]
