"""The fixture `buslog`: records of a log that is being written, and waiting for one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.host_tools.analyzer.activity import ActivityKind
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.pytest_plugin.buslog import BusLog, BusLogTimeout
from tests.models.analysis_log import QPN, Sender

RING = 0x80014
"""Offset in BAR 2 of the send doorbell of UAR page 128."""


class Writer:
    """A device server's side of a log."""

    def __init__(self, folder: Path) -> None:
        self.log = FileLog(folder, segment=4096)
        self.devices = {name: self.log.device(name) for name in "ab"}

    def ring(self, guest: str, qpn: int) -> None:
        """A doorbell, visible at once."""
        data = (qpn << 8).to_bytes(4, "big")
        self.log.record(self.devices[guest], Kind.MMIO_WRITE, 2, RING, 4, data)
        self.log.flush()

    def query(self, guest: str) -> None:
        """A firmware command, visible at once."""
        self.log.tell(self.devices[guest], Fact.COMMAND, name="QUERY_FW", status="OK")
        self.log.flush()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "bus")
    yield writer
    writer.log.close()


def test_records_are_decoded_and_filtered(writer: Writer, tmp_path: Path) -> None:
    writer.ring("a", 0x49)
    writer.ring("b", 0x4A)
    writer.query("b")
    writer.log.record(1, Kind.MMIO_READ, 0, bar0.BLOCKS[0].base, 4, bytes(4))
    writer.log.flush()
    log = BusLog(tmp_path)
    assert [record.guest for record in log] == ["a", "b", "b", "b"]
    (bell,) = log.records(kind="mmio", guest="b", bar=2)
    assert (bell.kind, bell.bar, bell.address, bell.length) == (Kind.MMIO_WRITE, 2, RING, 4)
    assert "qpn=0x4a" in bell.decoded and bell.decoded in str(bell)
    assert log.records(kind=Kind.MMIO_WRITE) == log.records(kind="mmio_write")
    assert [record.guest for record in log.records(containing="QUERY_FW")] == ["b"]
    assert log.records(guest="c") == []
    with pytest.raises(UsageError, match="no kind 'doorbell'; use one of mmio, dma"):
        log.records(kind="doorbell")


def test_waiting_for_a_record_that_is_still_to_come(writer: Writer, tmp_path: Path) -> None:
    """Over several segments, each record looked at once."""
    log = BusLog(tmp_path)
    seen: list[int] = []

    def write() -> None:
        for number in range(500):
            writer.ring("a", number)

    thread = threading.Thread(target=write)
    thread.start()

    def is_last(record: object) -> bool:
        seen.append(1)
        return "qpn=0x1f3" in str(record)

    found = log.wait_for(is_last, timeout=60, guest="a")
    thread.join()
    assert "qpn=0x1f3" in found.decoded
    assert len(seen) == 500
    assert len(list((tmp_path / "bus").glob("events-*.bin"))) > 2


def test_what_is_there_already_is_found_at_once(writer: Writer, tmp_path: Path) -> None:
    writer.ring("a", 0x41)
    writer.ring("a", 0x42)
    assert "qpn=0x41" in BusLog(tmp_path).wait_for(kind="mmio", timeout=0).decoded


def test_a_wait_in_vain_names_the_filter_and_shows_the_nearest(
    writer: Writer, tmp_path: Path
) -> None:
    """Those that fail one condition, by that condition; a function is named by its line."""
    for number in range(30):
        writer.ring("a", number)
    writer.ring("b", 0x77)
    writer.query("b")
    filters: dict[str, Any] = {"kind": "mmio_write", "guest": "b", "containing": "qpn=0x1d"}
    with pytest.raises(BusLogTimeout, match=r"no record with .* within 0 s.*/bus") as told:
        BusLog(tmp_path).wait_for(timeout=0, **filters)
    assert "kind=mmio_write, guest=b, containing='qpn=0x1d' on the bus" in str(told.value)
    lines = told.value.transcript.splitlines()
    assert lines[0].split()[0] == "timestamp"
    assert lines[1].startswith("all but guest=b (1)") or lines[1].startswith("all but containing")
    assert {line for line in lines if line.startswith("all but")} == {
        "all but guest=b (1):",
        "all but containing='qpn=0x1d' (1):",
    }
    assert len(lines) == 5 and any("qpn=0x77" in line for line in lines)
    assert isinstance(told.value, AssertionError)
    with pytest.raises(BusLogTimeout, match=r"guest=a, the lambda of line \d+ on the bus") as told:
        BusLog(tmp_path).wait_for(lambda record: record.bar == 7, timeout=0, guest="a")
    lines = told.value.transcript.splitlines()
    assert lines[1].startswith("all but the lambda of line") and "(30, the last 5):" in lines[1]
    assert len(lines) == 7 and "qpn=0x1d" in lines[-1]


def test_a_wait_in_vain_for_one_thing_shows_the_last_records(
    writer: Writer, tmp_path: Path
) -> None:
    log = BusLog(tmp_path)
    with pytest.raises(BusLogTimeout, match="no record with kind=irq on") as told:
        log.wait_for(kind="irq", timeout=0)
    assert told.value.transcript == "nothing was recorded"
    for number in range(30):
        writer.ring("a", number)
    with pytest.raises(BusLogTimeout, match="matching='kind=irq and vector=3'") as told:
        log.wait_for(matching="kind=irq and vector=3", timeout=0)
    lines = told.value.transcript.splitlines()
    assert lines[1] == "none of 30 came near; the last:" and len(lines) == 7
    with pytest.raises(UsageError, match="did you mean syndrome"):
        log.wait_for(matching="syndrom!=0", timeout=0)
    assert len(log.records(matching="qpn<3")) == 2


def test_work_requests_and_activities(tmp_path: Path) -> None:
    """As the analyzer assembles them, from where the test began."""
    sender = Sender(tmp_path)
    for _ in range(3):
        sender.post()
    sender.log.flush()
    log = BusLog(tmp_path)
    found = log.transfers()
    assert [each.index for each in found] == [0, 1, 2]
    assert log.transfers(guest="b") == [] and len(log.transfers(guest="a")) == 3
    assert len(log.work_requests(opcode="RDMA_WRITE", qpn=QPN, status=found[0].status)) == 3
    assert log.work_requests(opcode="SEND") == []
    assert [each.transfer is not None for each in log.activities("work_request")] == [True] * 3
    assert log.activities(ActivityKind.WORK_REQUEST, guest="b") == []
    with pytest.raises(UsageError, match="no kind of activity 'firmware'; use one of work_request"):
        log.activities("firmware")
    log.skip()
    sender.post()
    sender.log.close()
    assert [each.index for each in log.work_requests()] == [3]
    with pytest.raises(UsageError, match="not of a pair that runs"):
        log.mark("here")


def test_a_wait_ends_with_the_pair(writer: Writer, tmp_path: Path) -> None:
    """But what came before the end still counts."""
    writer.ring("a", 0x41)
    log = BusLog(tmp_path, alarms=[lambda: None, lambda: LabError("the server is gone")])
    assert log.wait_for(guest="a").guest == "a"
    with pytest.raises(LabError, match="the server is gone"):
        log.wait_for(guest="b", timeout=600)


def test_only_what_comes_from_now_on(writer: Writer, tmp_path: Path) -> None:
    writer.ring("a", 0x41)
    log = BusLog(tmp_path)
    log.skip()
    assert list(log) == []
    with pytest.raises(BusLogTimeout) as told:
        log.wait_for(guest="a", timeout=0)
    assert told.value.transcript == "nothing was recorded"
    writer.ring("a", 0x42)
    assert "qpn=0x42" in log.wait_for(guest="a").decoded
    assert [record.decoded for record in BusLog(tmp_path, log.now())] == []


def test_no_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"the bus log cannot be read: .*holds no bus log"):
        BusLog(tmp_path)
