"""Every event of a log is in exactly one activity, whatever the log is like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.host_tools.analyzer.activity import (
    Activity,
    ActivityAssembler,
    ActivityKind,
    activities,
)
from tests.models.analysis_log import EQN, QPN, Sender
from tests.models.facts import with_fact

BLUEFLAME = uar.UAR_AREA_SIZE + 128 * uar.PAGE_SIZE
ADDRESSES = (
    0, bar0.HCR_BASE, bar0.HCR_BASE + 4, bar0.HCR_BASE + 0x14, bar0.HCR_BASE + 0x18,
    bar0.RESET_OFFSET, uar.PAGE_SIZE * 128 + uar.SEND_DOORBELL,
    uar.PAGE_SIZE * 128 + uar.CQ_DOORBELL, uar.EQ_DOORBELL, BLUEFLAME, BLUEFLAME + 8,
    BLUEFLAME + 16,
)  # fmt: skip
ENTRY = bytes((0, 0, 0, 8, 0, 0, QPN, 3))
DATA = (
    b"", bytes(32), ENTRY, bytes((0, 0, QPN, 0)), bytes.fromhex("00c00043"),
    bytes.fromhex("000a") + bytes(30), bytes.fromhex("00090004") + bytes(8) + b"\x10" + bytes(19),
    bytes(7) + b"\x80",
)  # fmt: skip
WORKS = (0, 0, 1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT)

Mark = tuple[int, int]


def _events(draws: Sequence[tuple[str, Kind, int, What, int, int, bytes, int]]) -> list[Event]:
    return [
        with_fact(
            Event(
                number, number / 1000, device, kind, bar, what, obj, address, len(data), data, work
            )
        )
        for number, (device, kind, bar, what, obj, address, data, work) in enumerate(draws)
    ]  # fmt: skip


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", "a/2", "a.ntb4", "b.ntb4", "a.dma")),
        st.sampled_from(list(Kind)),
        st.sampled_from((0, 2)),
        st.sampled_from(list(What)),
        st.sampled_from((0, 1, 4, QPN)),
        st.sampled_from(ADDRESSES),
        st.sampled_from(DATA),
        st.sampled_from(WORKS),
    ),
    max_size=80,
).map(_events)


def _assembled(events: Sequence[Event]) -> list[Activity]:
    assembler = ActivityAssembler(["a", "b", "a/2", "a.ntb4", "b.ntb4", "a.dma"])
    found = [each for event in events for each in assembler.feed(event)]
    return found + assembler.finish()


def _covers(found: Sequence[Activity], events: Sequence[Event]) -> None:
    """Each event is in one activity: a joined store is counted, and lies inside of its line."""
    parts = [one for each in found for one in each.transactions if not one.repeated]
    numbers = Counter(one.number for one in parts)
    assert not [number for number, count in numbers.items() if count > 1]
    assert sum(one.stores for one in parts) == len(events)
    missing = {event.number for event in events} - set(numbers)
    assert len(missing) == sum(one.stores - 1 for one in parts)
    assert all(each.number == min(one.number for one in each.transactions) for each in found)
    assert all(each.begin <= one.time <= each.end for each in found for one in each.transactions)


@given(EVENTS)
def test_no_event_is_lost_or_doubled(events: list[Event]) -> None:
    _covers(_assembled(events), events)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.data())
def test_logs_with_holes(tmp_path: Path, data: st.DataObject) -> None:
    """A log whose beginning was deleted, or of which a filter left some events."""
    sender = Sender(tmp_path)
    for by in data.draw(st.lists(st.sampled_from(("doorbell", "blueflame", "fallback")))):
        sender.post(by=by, announced=data.draw(st.booleans()))
    sender.log.close()
    events = list(LogReader(tmp_path))
    left = [event for event in events if data.draw(st.booleans()) or event.number % 3]
    _covers(_assembled(left), left)


def test_a_work_request_has_all_its_events(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    for by in ("doorbell", "blueflame", "fallback"):
        sender.post(by=by, announced=True)
    sender.log.close()
    found = list(activities(tmp_path))
    assert [each.kind for each in found] == [ActivityKind.WORK_REQUEST] * 3
    assert [each.title for each in found] == ["RDMA_WRITE 8 bytes, QP 0x48"] * 3
    assert [each.status for each in found] == ["OK"] * 3
    assert found[2].notes == ["BlueFlame page 0: its page is 128: fetched instead"]
    _covers(found, list(LogReader(tmp_path)))


def test_what_nobody_takes_is_given_out_while_the_log_grows() -> None:
    """A doorbell of a queue pair that fetches nothing does not wait for the end of the log."""
    assembler = ActivityAssembler(["a"])
    ring = bytes((0, 0, QPN, 0))
    address = uar.PAGE_SIZE * 128 + uar.SEND_DOORBELL
    begin = Event(0, 0.0, "a", Kind.MMIO_WRITE, 2, What.OTHER, 0, address, 4, ring)
    found = assembler.feed(begin)
    number = 0
    while not found and number < 10_000:
        number += 1
        at = number / 1e6
        found = assembler.feed(
            Event(number, at, "a", Kind.CONFIG_READ, 0, What.OTHER, 0, 0, 4, ring)
        )
        found = [each for each in found if each.kind is ActivityKind.ACCESS]
    assert [each.number for each in found] == [0]


def test_a_stream_that_never_ends_needs_bounded_memory() -> None:
    """Stores into the command register without GO, and event entries without interrupts."""
    assembler = ActivityAssembler(["a"])
    waiting = greatest = 0
    for number in range(20_000):
        kind, address = Kind.MMIO_WRITE, bar0.HCR_BASE + 4
        if number % 3 == 0:
            kind, address = Kind.DMA_WRITE, 0x1000
        what = What.EQE if kind is Kind.DMA_WRITE else What.OTHER
        event = Event(
            number, number / 1e6, "a", kind, 0, what, EQN + number % 7, address, 4, bytes(32)
        )
        waiting += 1 - sum(len(each.transactions) for each in assembler.feed(event))
        greatest = max(greatest, waiting)
    assert greatest < 6000
