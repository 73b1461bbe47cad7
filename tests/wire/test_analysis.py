"""The analyzer on the log of a real server: the exact transactions of the study's sends."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Transfer, transfers
from tests.models.players import Player, driven, settle
from tests.models.server import devices
from tests.models.trace_reader import TraceReader

OK = WcStatus.SUCCESS
SIZES = (4, 28, 29, 88, 89, 148, 149, 208, 220)
"""Both sides of the study's steps; the last does not fit into a register any more."""
USES = {None: PostedBy.DOORBELL, "on": PostedBy.BLUEFLAME, "wrong page": PostedBy.FALLBACK}


@dataclass(frozen=True)
class Recorded:
    """A log and, by how it was posted, the work requests in it."""

    folder: Path
    requests: dict[str | None, list[Transfer]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The same writes, sends and reads without BlueFlame, with it, and through a wrong page."""
    folder = tmp_path_factory.mktemp("analysis")
    with devices(folder, "--blueflame", "on"):
        for use in (None, BlueFlameUse(), BlueFlameUse(wrong_page=True)):
            with driven(folder, blueflame=use) as (a, b):
                _post_all(a, b)
    requests = iter(transfers(folder / "log"))
    return Recorded(folder / "log", {use: list(_take(requests)) for use in USES})


def _post_all(first: Context, second: Context) -> None:
    """One request at a time, so that the device does not fetch the next one with it."""
    a, b = Player(first, inline=SIZES[-1]), Player(second)
    a.connect(b)
    b.connect(a)
    for size in SIZES:
        write = SendWr(1, WrOpcode.RDMA_WRITE, inline_data=bytes(size))
        write.remote_addr, write.rkey = b.address, b.mr.rkey
        a.qp.post_send(write)
        a.expect(OK)
        settle(a)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 1000)], b)
    a.expect(OK)
    settle(a)
    a.send(WrOpcode.RDMA_READ, [a.sge(0, 100)], b)
    a.expect(OK)
    settle(a)
    b.cq.req_notify()
    b.receive()
    a.send(WrOpcode.SEND, [a.sge(0, 64)])
    a.expect(OK)
    b.expect(OK)
    settle(a)


def _take(requests: Iterator[Transfer]) -> Iterator[Transfer]:
    """The work requests of one pass, which ends with the SEND."""
    for transfer in requests:
        yield transfer
        if transfer.opcode == "SEND":
            return


def _bus(transfer: Transfer) -> list[tuple[str, int, str]]:
    return [(one.device, one.length, one.role.value) for one in transfer.on_bus()]


def test_what_a_write_costs(recorded: Recorded) -> None:
    """Doorbell: 4 bytes and a read; BlueFlame: whole lines; fallback: the lines, then the read."""
    for use, by in USES.items():
        for size, transfer in zip(SIZES, recorded.requests[use], strict=False):
            entry = transfer.entry_bytes
            lines = [("a", 64, "BlueFlame write")] * -(-entry // 64)
            read = [("a", entry, "WQE read")]
            before = {
                PostedBy.DOORBELL: [("a", 4, "doorbell"), *read],
                PostedBy.BLUEFLAME: lines,
                PostedBy.FALLBACK: lines + read,
            }
            way = PostedBy.DOORBELL if entry > 256 else by
            assert transfer.posted_by is way
            rest = [("b", size, "payload write"), ("a", 32, "CQE")]
            assert _bus(transfer) == before[way] + rest
            assert (transfer.length, transfer.inline, transfer.status) == (size, size, "OK")


def test_the_studys_steps(recorded: Recorded) -> None:
    """One line up to 28 bytes, two up to 88, three up to 148, four up to 208 (table 4.1)."""
    lines = [each.count(Role.BLUEFLAME) for each in recorded.requests["on"]][: len(SIZES)]
    assert lines == [1, 1, 2, 2, 3, 3, 4, 4, 0]


def test_why_an_entry_was_fetched(recorded: Recorded) -> None:
    wrong = recorded.requests["wrong page"][0]
    assert len(wrong.notes) == 1
    assert "BlueFlame page 0" in wrong.notes[0]
    assert not any(each.notes for each in recorded.requests["on"])


def test_other_transactions(recorded: Recorded) -> None:
    """Payload that is fetched, a read's data, and a receive with its event and interrupt."""
    write, read, send = recorded.requests[None][-3:]
    assert _bus(write) == [
        ("a", 4, "doorbell"), ("a", 48, "WQE read"), ("a", 1000, "payload read"),
        ("b", 1000, "payload write"), ("a", 32, "CQE"),
    ]  # fmt: skip
    assert _bus(read) == [
        ("a", 4, "doorbell"), ("a", 48, "WQE read"), ("b", 100, "payload read"),
        ("a", 100, "payload write"), ("a", 32, "CQE"),
    ]  # fmt: skip
    remote = [one.role for one in send.transactions if one.remote and one.on_bus]
    assert remote == [
        Role.DOORBELL_RECORD, Role.RECEIVE_WQE, Role.PAYLOAD_WRITE, Role.CQE, Role.EQE,
        Role.INTERRUPT,
    ]  # fmt: skip


def _view(recorded: Recorded, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(recorded.folder), *words])) == 0
    return capsys.readouterr().out.splitlines()


def test_the_table_matches_the_figures_of_the_study(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figure 4.6: a write of 10h words downstream, then the data and the completion upstream."""
    first = recorded.requests["on"][0]
    lines = _view(
        recorded, capsys, "--view", "table", "--event", str(first.transactions[0].number),
        "--limit", "4",
    )  # fmt: skip
    assert "102/1 to host: Type" in lines[0]
    up, down = lines[0].index("102/1"), lines[0].index("104/1")
    shown = [(line[up : up + 12].strip(), line[down : down + 12].strip()) for line in lines[1:]]
    assert shown[:3] == [("", "Memory Write"), ("Memory Write", ""), ("Memory Write", "")]
    lengths = [line[lines[0].index("length") :].split("  ")[0].strip() for line in lines[1:4]]
    assert [text[:4] for text in lengths] == ["0 10", "0 01", "0 08"]


def test_the_timeline_has_arrows_between_the_machines(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _view(recorded, capsys, "--perfetto", str(tmp_path / "trace"))
    trace = TraceReader.of(tmp_path / "trace")
    assert trace.events() == {event.number for event in LogReader(recorded.folder)}
    ends = [
        (trace.path(one.track)[0], one.category, trace.path(other.track)[0])
        for one, other in trace.arrows()
    ]
    total = sum(len(each) for each in recorded.requests.values())
    assert ends.count(("machine a", "request", "machine b")) == total
    assert ends.count(("machine b", "response", "machine a")) == total
    commands = [one for one in trace.slices if one.category == "command" and not one.depth]
    assert {"INIT_HCA", "SW2HW_CQ", "RST2INIT_QP"} <= {one.args["operation"] for one in commands}
    assert min(one.duration for one in commands) > 0
