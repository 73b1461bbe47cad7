"""The views of a log of a network of packets: RoCE in them is decoded as messages are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.analyzer.activity import activities
from bluebridge.host_tools.analyzer.analysis import Role, Transfer, transfers
from bluebridge.host_tools.analyzer.event_lines import named_fields
from bluebridge.host_tools.cli import main
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.web import rows
from tests.models.house import HOME
from tests.models.players import SIZE, Player, driven, settle
from tests.models.server import devices

OK = WcStatus.SUCCESS
MTU = 1024
PACKETS = SIZE // MTU
READS, SHORT = 8, 100
"""More READs than may wait for answers, and their bytes."""


@dataclass(frozen=True)
class Recorded:
    """A log, its work requests, and the queue pairs of both ends."""

    folder: Path
    requests: list[Transfer]
    qpns: tuple[int, int]
    rkey: int


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A SEND of 5 bytes, a WRITE of which a packet is lost, READs, a refused WRITE."""
    folder = tmp_path_factory.mktemp("views")
    with devices(folder, "--wire", "packets"), driven(folder) as (first, second):
        a, b = Player(first), Player(second)
        a.connect(b, max_rd_atomic=2)
        b.connect(a)
        qpns, rkey = (a.qp.qpn, b.qp.qpn), b.mr.rkey
        b.receive()
        a.send(WrOpcode.SEND, [a.sge(0, 5)])
        a.expect(OK)
        b.expect(OK)
        hardware.tell(folder / "control", "drop a direction=out psn=+3 transmission=1 count=1")
        for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
            a.send(opcode, [a.sge(0, SIZE)], b)
            a.expect(OK)
            settle(a)
        reads = [SendWr(1, WrOpcode.RDMA_READ, [a.sge(0, SHORT)]) for _ in range(READS)]
        for read in reads:
            read.remote_addr, read.rkey = b.address, rkey
        a.qp.post_send(reads)
        a.expect(*[OK] * READS)
        settle(a)
        refused = SendWr(1, WrOpcode.RDMA_WRITE, [a.sge(0, 8)])
        refused.remote_addr, refused.rkey = b.address, rkey + 1
        a.qp.post_send(refused)
        a.expect(WcStatus.REM_ACCESS_ERR)
    return Recorded(folder / "log", list(transfers(folder / "log")), qpns, rkey)


def test_a_message_of_any_number_of_packets_is_one_work_request(recorded: Recorded) -> None:
    found = [
        (one.opcode, one.length, one.peer_qpn, one.count(Role.REQUEST), one.count(Role.RESPONSE))
        for one in recorded.requests
    ]
    peer, again = recorded.qpns[1], PACKETS - 3
    assert found == [
        ("SEND", 5, peer, 1, 1),
        ("RDMA_WRITE", SIZE, peer, PACKETS + again, 3),
        ("RDMA_READ", SIZE, peer, 1, PACKETS),
        *[("RDMA_READ", SHORT, peer, 1, 1)] * READS,
        ("RDMA_WRITE", 8, peer, 1, 1),
    ]
    assert {one.inline for one in recorded.requests} == {0}
    assert [one.status for one in recorded.requests] == ["OK"] * (3 + READS) + ["REM_ACCESS_ERR"]


def test_the_views_name_packets(
    recorded: Recorded, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own, peer = recorded.qpns
    assert main(["log", str(recorded.folder), "--view", "wr", "--tree"]) == 0
    tree = capsys.readouterr().out
    assert f"RC SEND_ONLY > qpn={peer:#x} psn=0xfffffe bytes=5" in tree
    assert f"ACK > qpn={own:#x} psn=0xfffffe bytes=0 msn=1" in tree
    assert f"NAK_PSN > qpn={own:#x} psn=0x2 " in tree
    assert f"rkey={recorded.rkey:#x} length={SIZE}" in tree
    assert tree.count("NAK_REMOTE_ACCESS >") == 1
    assert "frame" not in tree
    assert main(["log", str(recorded.folder), "--kind", "wire", "--decode"]) == 0
    wire = capsys.readouterr().out.splitlines()[1:]
    assert len([line for line in wire if "ethertype" in line]) == 0
    timeline = tmp_path / "timeline.gz"
    assert main(["log", str(recorded.folder), "--perfetto", str(timeline)]) == 0


PAGE = HOME / "docs" / "from-wireshark.md"
NUMBERS = re.compile(r"0x[0-9a-f]+|[\d.]+ ?")


def test_the_page_from_wireshark_shows_what_is_printed(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    """Queue pairs, keys and times are of one run."""
    for words in (["--view", "wr", "--tree"], ["--kind", "wire", "--decode"]):
        assert main(["log", str(recorded.folder), *words]) == 0
    printed = "".join(map(without_numbers, capsys.readouterr().out.splitlines(keepends=True)))
    section = PAGE.read_text().partition("## Packets in the log")[2].partition("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith("     ")]
    shown += re.findall(r"^    ((?:RC|NAK).* > .*)$", section, re.MULTILINE)
    assert len(shown) == 14
    for line in shown:
        assert without_numbers(line).strip() in printed


def without_numbers(line: str) -> str:
    return " ".join(NUMBERS.sub("0 ", line).split()) + "\n"


def test_the_page_shows_packets_and_their_headers(recorded: Recorded) -> None:
    """The steps of the SEND: its packet with five bytes, the answer behind the peer's entry."""
    found = activities(LogReader(recorded.folder))
    send = next(each for each in found if each.transfer is not None)
    events = {event.number: event for event in LogReader(recorded.folder)}
    steps = rows.detail(send, events, {"a": "b", "b": "a"})["list"]
    request, answer = (
        next(step for step in steps if step["decoded"].startswith(word))
        for word in ("RC SEND_ONLY", "ACK")
    )
    assert request["length"] == 5 and "with 5 bytes of data" in request["caption"]
    assert answer["caption"].startswith("the answer goes back")
    fields = {f"{each.table.name}.{each.name}" for each in named_fields(events[answer["number"]])}
    assert {"BTH.psn", "AETH.syndrome", "AETH.msn", "GRH.sgid"} <= fields
