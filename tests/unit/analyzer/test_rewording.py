"""No view depends on the words in which facts are printed: all of them reworded, it stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase as LETTERS

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Told
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.conditions import Condition, LiveSearch
from bluebridge.host_tools.analyzer.log_command import VIEWS
from bluebridge.host_tools.analyzer.timeline.tracks import NAME_SHOWN
from bluebridge.host_tools.pytest_plugin import evidence
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.side_by_side import lines, paired
from bluebridge.host_tools.web.timeline import moments
from tests.models import bus_traffic
from tests.models.analysis_log import QPN, A, Sender
from tests.models.queue_log import bring_up, failed_send, make_rings
from tests.unit.analyzer.test_wire_check import traffic_frames

CODE = str.maketrans(LETTERS + LETTERS.upper(), LETTERS[1:] + "a" + LETTERS[1:].upper() + "A")
CONDITIONS = (
    "kind=command and status!=OK", "opcode=RTR2RTS_QP", "us>5", "retry>=1", "cable=in", "port=0",
    "qpn=0x48 and kind=note", "action=ecn", 'name="name text"', "kind=fault", "rate>1000000",
)  # fmt: skip
EVERYTHING = 100_000


def _facts(sender: Sender, function: str) -> None:
    """Each fact once, as of a function and of its work request; numbers have other values."""
    device = sender.log.device(function)
    for fact in Fact:
        values = {
            name: f"{name} text" if form.text else QPN if form.noun == "QP" else at
            for at, (name, form) in enumerate(fact.fields.items())
        }
        sender.log.work = (1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT) * (fact.value % 2)
        sender.log.tell(device, fact, **values)


def _log(folder: Path) -> Path:
    """A bring-up, work requests in all ways, traffic of buses, bridges, engines, and all facts."""
    sender = Sender(folder, capture=4096)
    bring_up(sender)
    make_rings(sender)
    sender.command("DUMP_ETH_STATS")
    sender.command("MAP_FA", "BAD_PARAM", reason="no such page")
    for by in ("doorbell", "blueflame", "fallback"):
        sender.post(by=by, announced=True)
    sender.log.record(A, Kind.MMIO_WRITE, 0, bar0.RESET_OFFSET, 4, b"\1\0\0\1")
    sender.tell(Fact.RESET, cause="software")
    for at, rate in enumerate((10, 40, 20)):
        sender.tell(Fact.RATE, qpn=QPN, rate=rate * 1_000_000, target=at, alpha=at, cause="CNP")
    bus_traffic.bring_up(sender.log)
    bus_traffic.bridge(sender.log, 0)
    for function in ("a", "a.ntb4", "b.dma"):
        _facts(sender, function)
    sender.tell(Fact.RULE, rule=1, action="ecn", verb="marks", dqpn=QPN, psn=3)
    for frame in traffic_frames():
        sender.log.record(A, Kind.WIRE, 0, 0, len(frame), frame, What.FRAME)
    sender.doorbell()
    sender.tell(Fact.BLUEFLAME_REFUSED, page=0, reason="its page is another", qpn=QPN)
    failed_send(sender)
    sender.log.close()
    return folder


def _shown(log: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Return what every view shows of a log, its conditions find, and its comparison."""
    words = [["--view", view] for view in VIEWS] + [["--no-polling"], ["--failed"], ["--json"]]
    words += [["--view", view, "--tree"] for view in ("table", "all", "wr", "bridge")]
    words += [["--view", view, "--json"] for view in VIEWS]
    trace = log.parent / "trace"
    for each in (*words, ["--mark", "text"], ["--perfetto", str(trace), "--force"]):
        capsys.readouterr()
        status = cli.main(["log", str(log), *each])
        yield f"{each} {status} {capsys.readouterr().out}"
    yield trace.read_bytes().decode("latin-1")
    yield str(cli.main(["log", "--diff", str(log), str(other)])) + capsys.readouterr().out
    yield str(cli.main(["check", "wire", str(log), "--json"])) + capsys.readouterr().out
    for text in CONDITIONS:
        found = [each.number for each in LiveSearch(LogReader(log), Condition.parse(text)).new()]
        assert found, text
        yield f"{text} {found}"
    books = Book(log), Book(other)
    pages = [book.page(0, EVERYTHING, Query(), 60.0) for book in books]
    yield json.dumps([page.as_json() for page in pages])
    yield json.dumps([books[0].detail(each.number) for each in pages[0].found])
    yield json.dumps(paired(*(lines(page.found) for page in pages)))
    yield json.dumps(moments(LogReader(log)))
    yield str(evidence.on_the_bus(log, ""))


def _reworded(told: Told) -> str:
    return told.fact.text(told.values).translate(CODE)


def test_every_sentence_reworded_leaves_every_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of the same length, so that columns stay; nobody's program reads them."""
    log, other = _log(tmp_path / "log"), _log(tmp_path / "other")
    said = {event.text for event in LogReader(log) if event.told is not None}
    before = list(_shown(log, other, capsys))
    monkeypatch.setattr(Told, "text", property(_reworded))
    after = list(_shown(log, other, capsys))
    said |= {text[: NAME_SHOWN - 1] for text in said if len(text) > NAME_SHOWN}
    for one, reworded in zip(before, after, strict=True):
        assert _without(one, said) == _without(reworded, said)


def _without(shown: str, said: set[str]) -> str:
    """Return what a view shows with the same word for a sentence and for its other wording."""
    for text in sorted(said, key=len, reverse=True):
        shown = shown.replace(text, "FACT").replace(text.translate(CODE), "FACT")
    return shown
