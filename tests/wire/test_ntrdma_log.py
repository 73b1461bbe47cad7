"""NTRDMA in the log of a real device server: what a user sees of writes, reads, sends, batches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bluebridge.guest.verbs import SendFlags, SendWr, WrOpcode
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, transfers
from bluebridge.host_tools.analyzer.views.ntrdma import costs
from tests.models.verbs.contract.common import OK, join
from tests.models.verbs.player import Player, fill
from tests.wire import ntrdma_pair

BATCHES = (1, 4, 16)


@dataclass(frozen=True)
class Recorded:
    """A log, and whether a DMA engine stored."""

    folder: Path
    dma: bool


@pytest.fixture(scope="module", params=[True, False], ids=["ntb+dma", "ntb+cpu"])
def recorded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Recorded]:
    """A write, a read, a send, then writes in batches."""
    folder = tmp_path_factory.mktemp("ntrdma-log")
    log = folder / "log"
    with (
        ntrdma_pair.server(folder, "--log", str(log)),
        ntrdma_pair.joined(folder, request.param) as (a, b),
    ):
        x, y = join(Player(a), Player(b))
        fill(x, y)
        x.send(WrOpcode.RDMA_WRITE, [x.sge(0, 8)], y)
        x.expect(OK)
        x.send(WrOpcode.RDMA_READ, [x.sge(64, 5000)], y)
        x.expect(OK)
        y.receive()
        x.send(WrOpcode.SEND, [x.sge(0, 100), x.sge(200, 50)])
        x.expect(OK)
        y.expect(OK)
        for size in BATCHES:
            x.qp.post_send([_write(x, y) for _ in range(size)])
            x.expect(*[OK] * size)
    yield Recorded(log, request.param)


def _write(x: Player, y: Player) -> SendWr:
    request = SendWr(1, WrOpcode.RDMA_WRITE, [x.sge(0, 32)], SendFlags.SIGNALED)
    request.remote_addr, request.rkey = y.address, y.mr.rkey
    return request


def shown(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> list[str]:
    """Return what `bluebridge log` prints."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(log), *words])) == 0
    return capsys.readouterr().out.splitlines()


def test_every_store_has_a_name(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """Once the first block has come, nothing goes through the windows that has none."""
    lines = [
        line
        for line in shown(capsys, recorded.folder, "--decode")
        if "through the peer's window into" in line
    ]
    assert all("NTRDMA " in line for line in lines)
    text = "\n".join(lines)
    for words in (
        "command 1: PD_CREATE",
        "response 3: QP_CREATE OK key=0x10",
        "send 0 of QP 0x10 of a: WRITE bytes=8 address=",
        "send 1 of QP 0x10 of a: READ bytes=5000 address=",
        "completion 1 of QP 0x10 of a: READ OK bytes=5000",
        "receive 0 of QP 0x10 of b: pieces=1 65536 bytes at ",
        "send 2 of QP 0x10 of a: SEND bytes=150 receive=0",
    ):
        assert f"NTRDMA {words}" in text


def test_work_requests(recorded: Recorded) -> None:
    """Each from its doorbell, or its stores, to the index of its completion."""
    found = list(transfers(recorded.folder))
    assert [each.opcode for each in found] == ["WRITE", "READ", "SEND", *["WRITE"] * 21]
    assert {each.status for each in found} == {"OK"}
    assert [each.index for each in found] == list(range(24))
    write, read, send = found[:3]
    posted = PostedBy.DOORBELL if recorded.dma else PostedBy.STORES
    assert {each.posted_by for each in (write, read, send)} == {posted}
    assert write.count(Role.WINDOW, remote=True) - (0 if recorded.dma else 3) == 4
    arrived = [one.length for one in read.of(Role.WINDOW, remote=False) if one.upstream]
    assert arrived[-3:] == [24, 4, 4]
    assert sum(arrived[:-3]) == 5000
    assert send.notes[0].startswith("receive 0 was posted before")
    by = [each.posted_by for each in found[-16:]]
    assert by == [posted, *[PostedBy.FOUND] * 15]


def test_what_writes_cost(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch has one index, and one bell, each way."""
    rows = {
        row.size: row
        for row in costs(recorded.folder)
        if (row.machine, row.operation) == ("a", "WRITE")
    }
    assert set(rows) == set(BATCHES)
    for size, row in rows.items():
        assert row.sender.data == row.requests
        assert row.sender.indices == row.sender.bells == row.batches
        assert row.sender.descriptors == (row.sender.stores if recorded.dma else 0)
        assert row.both.indices * size == 2 * row.requests
        if recorded.dma and size < 16:  # the largest goes around the ring's end
            assert row.both.descriptors == row.batches * (size + 6)
    lines = shown(capsys, recorded.folder, "--view", "ntrdma")
    assert any(line.startswith("a   WRITE               16        1 |") for line in lines)
