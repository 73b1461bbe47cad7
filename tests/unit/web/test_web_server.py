"""`bluebridge web` without a browser: who is let in, pages of a log, events as they come."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.analyzer.activity.routine import routine
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction
from bluebridge.host_tools.web import book as book_module
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.rows import CAPTIONS, kept
from bluebridge.host_tools.web.timeline import peers, way
from bluebridge.host_tools.web.words import AFTER
from bluebridge.images.cache import HOME
from tests.models.analysis_log import A, Sender, posted
from tests.models.until import until
from tests.unit.web.web_site import POSTS, SECRET, Control, served, written

EVENTS = 67 * POSTS


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished log."""
    folder = tmp_path_factory.mktemp("web") / "log"
    written(folder).log.close()
    return folder


@pytest.fixture(scope="module")
def site(log: Path) -> Iterator[str]:
    """Its site."""
    with served(log) as address:
        yield address


def _ask(
    address: str, path: str, method: str = "GET", body: object = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer; `path` as it stands in the request."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    data = None if body is None else json.dumps(body)
    told = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, data, told | headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def _json(address: str, path: str) -> Any:
    status, body, _ = _ask(address, f"/{SECRET}/{path}")
    assert status == 200, body
    return json.loads(body)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/lab", {}),
        (f"/{SECRET}x/lab", {}),
        (f"/{SECRET[:-1]}/lab", {}),
        ("/%ff%00/lab", {}),
        (f"/{SECRET}/lab", {"Host": "attacker.example"}),
        (f"/{SECRET}/lab", {"Origin": "http://attacker.example"}),
    ],
)
def test_only_who_has_the_address_is_let_in(site: str, path: str, headers: dict[str, str]) -> None:
    status, body, told = _ask(site, path, **headers)
    assert status == 403
    assert b"hosts" not in body
    assert "default-src 'none'" in told["Content-Security-Policy"]


def test_buttons_are_no_links_and_need_a_pair_that_runs(site: str) -> None:
    assert _ask(site, f"/{SECRET}/act")[0] == 405
    order = {"word": "link", "name": "a/1", "action": "down"}
    status, body, _ = _ask(site, f"/{SECRET}/act", "POST", order)
    assert (status, "pair that runs" in body.decode()) == (409, True)


def test_buttons_reach_the_control_socket(log: Path, tmp_path: Path) -> None:
    control = Control(tmp_path / "c")
    with served(log, tmp_path / "c") as address:
        for word, name, action in (("link", "a/1", "down"), ("fault", "b", "")):
            order = {"word": word, "name": name, "action": action}
            status, body, _ = _ask(address, f"/{SECRET}/act", "POST", order)
            assert (status, name in json.loads(body)["done"]) == (200, True)
        for order in ({"word": "profile", "name": "start"}, {"word": "fault", "name": "b\nx"}, {}):
            assert _ask(address, f"/{SECRET}/act", "POST", order)[0] == 409
        assert _ask(address, f"/{SECRET}/act", "POST", [1])[0] == 400
        control.close()
        status, body, _ = _ask(address, f"/{SECRET}/act", "POST", {"word": "fault", "name": "a"})
        assert (status, "does not answer" in body.decode()) == (409, True)
    assert control.lines == ["link a/1 down", "fault b"]


def test_the_lab_has_hosts_functions_and_the_length_of_the_log(site: str) -> None:
    lab = _json(site, "lab")
    assert {host: [each["kind"] for each in own] for host, own in lab["hosts"].items()} == {
        "a": ["HCA"],
        "b": ["HCA"],
    }
    assert lab["peers"] == {"a": "b", "b": "a"}
    assert lab["log"]["end"] == EVENTS


def test_the_axis_has_a_lane_for_each_machine_and_the_wire(site: str) -> None:
    """All of the time, then a part of it: the counts are those of the events there."""
    log = _json(site, "lab")["log"]
    whole = _json(site, f"timeline?since={log['begin']}&until={log['seconds']}")
    assert list(whole["lanes"]) == ["a", "b", "wire"]
    assert sum(count for parts in whole["lanes"].values() for _, count in parts) == EVENTS
    middle = (log["begin"] + log["seconds"]) / 2
    half = _json(site, f"timeline?since={log['begin']}&until={middle}")
    assert 0 < sum(count for parts in half["lanes"].values() for _, count in parts) < EVENTS
    for wrong in ("since=2&until=1", "since=nan&until=nan", "since=x&until=1", "until=inf"):
        assert _ask(site, f"/{SECRET}/timeline?{wrong}")[0] == 400, wrong


def test_pages_hold_every_activity_once_in_order(log: Path) -> None:
    book = Book(log)
    numbers: list[int] = []
    first, done = 0, False
    while not done:
        page = book.page(first, 150, Query())
        numbers += [each.number for each in page.found]
        first, done = page.end, page.done
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 3 * POSTS
    back: list[int] = []
    end = EVENTS
    while end:
        before = book.before(end, 150, Query())
        back = [each.number for each in before.found] + back
        end = before.first
    assert back == numbers


def test_an_interrupt_has_a_vector_and_no_address(site: str) -> None:
    """The log has no table of MSI-X: address and data of the message are not known."""
    found = [row for row in _json(site, "activities?first=0")["rows"] if row["steps"] > 9]
    steps = _json(site, f"activity/{found[0]['number']}")["list"]
    (step,) = [each for each in steps if each["what"].startswith("interrupt")]
    assert (step["type"], step["what"], step["address"]) == ("MSI-X", "interrupt, vector 1", "")


def test_a_page_ends_when_its_time_is_up(log: Path) -> None:
    page = Book(log).page(0, 1 << 30, Query(text="nowhere to be found"), seconds=0)
    assert not page.done
    assert 0 < page.end < EVENTS
    assert page.found == []


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("kind=work+request", 3 * POSTS),
        ("kind=reset", 0),
        ("device=b", 0),
        ("failed=1", 0),
        ("text=rdma_write+100", POSTS),
        ("text=MSI-X+vector+1", POSTS),  # in the words of one of its steps
        ("text=" + quote("é\u2028<script>"), 0),
    ],
)
def test_search_and_filters(site: str, query: str, count: int) -> None:
    first, found, done = 0, 0, False
    while not done:
        page = _json(site, f"activities?first={first}&{query}")
        found += len(page["rows"])
        first, done = page["end"], page["done"]
    assert found == count


@pytest.mark.parametrize("query", ["first=x", "first=-1", "before=1e9", "first=" + "9" * 5000])
def test_a_number_that_is_none_is_said(site: str, query: str) -> None:
    status, body, _ = _ask(site, f"/{SECRET}/activities?{query}")
    assert (status, "is no number of an event" in body.decode()) == (400, True)


def test_the_log_of_a_failed_test_opens_where_it_failed(tmp_path: Path) -> None:
    """Its page stands beside it; other logs open on their first work request."""
    sender = written(tmp_path / "test" / "bus", 1)
    sender.command("MAP_FA", "BAD_PARAM")
    sender.log.close()
    book = Book(LogReader(tmp_path / "test").folder)
    assert book.opening(68) == 0
    (tmp_path / "test" / "test_x.html").write_text("")
    assert book.opening(68) == 67
    assert Book(tmp_path / "test" / "bus").opening(60) == 0


def test_steps_are_decoded_and_say_where_they_go(site: str) -> None:
    found = _json(site, "activity/0")
    steps = found["list"]
    assert [step["way"] for step in steps[:4]] == [
        ["a:cpu", "a:port", "a"],
        ["a", "a:port", "a:memory", "a:port", "a"],
        ["a", "wire", "b"],
        ["b", "b:port", "b:memory"],
    ]
    assert steps[1]["decoded"].startswith("WQE qpn=0x48 RDMA_WRITE")
    assert len(steps[1]["data"]) == 2 * steps[1]["length"]
    assert _json(site, "activity/1") == found  # a link may name any event of it
    assert _ask(site, f"/{SECRET}/activity/{67 * POSTS}")[0] == 404


def _transaction(device: str, tlp: Tlp, role: Role = Role.WINDOW) -> Transaction:
    return Transaction(0, 0.0, device, tlp, role, True, 0x1000, 8, b"")


@pytest.mark.parametrize(
    ("device", "tlp", "role", "cause", "path"),
    [
        ("b.ntb", Tlp.MEMORY_WRITE, Role.WINDOW, "a.ntb", "a.ntb wire b.ntb b:port b:memory"),
        (
            "b.ntb", Tlp.MEMORY_WRITE, Role.WINDOW, "a.dma",
            "a.dma a:port a.ntb wire b.ntb b:port b:memory",
        ),
        (
            "b.ntb", Tlp.MEMORY_READ, Role.WINDOW, "a.ntb",
            "a.ntb wire b.ntb b:port b:memory b:port b.ntb wire a.ntb",
        ),
        ("b.ntb", Tlp.MEMORY_WRITE, Role.INTERRUPT, "a.ntb", "a.ntb wire b.ntb b:port b:cpu"),
        ("b.ntb", Tlp.MEMORY_WRITE, Role.INTERRUPT, "b.ntb", "b.ntb b:port b:cpu"),
    ],
)  # fmt: skip
def test_a_store_crosses_the_wire_of_its_bridge(
    device: str, tlp: Tlp, role: Role, cause: str, path: str
) -> None:
    devices = ["a.ntb", "b.ntb", "a.dma", "b.dma"]
    twins = peers(devices)
    assert twins == {"a.ntb": "b.ntb", "b.ntb": "a.ntb"}
    one, before = _transaction(device, tlp, role), _transaction(cause, Tlp.MEMORY_WRITE)
    assert way(one, before, twins.get(device)) == path.split()


def test_bytes_that_were_not_kept_are_said(tmp_path: Path) -> None:
    sender = Sender(tmp_path / "log", capture=64)
    sender.host()
    sender.log.record(A, Kind.DMA_WRITE, 0, 0x1000, 4096, bytes(4096))
    sender.log.close()
    found = Book(tmp_path / "log").detail(0)
    assert found is not None
    assert len(found["list"][0]["data"]) == 2 * 64
    assert found["list"][0]["kept"].startswith("64 of 4096 bytes were kept")
    assert kept(8, 8) == ""


def test_new_events_reach_an_open_page(tmp_path: Path) -> None:
    sender = written(tmp_path / "log", 1)
    with served(tmp_path / "log") as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        connection.request("GET", f"/{SECRET}/events")
        stream = connection.getresponse()
        assert stream.getheader("Content-Type", "").startswith("text/event-stream")
        titles: list[str] = []
        rates: dict[str, Any] = {}
        posted = False
        while not titles or not rates:
            line = stream.readline().decode()
            if not line.startswith("data: "):
                continue
            told = json.loads(line[6:])
            if not posted:  # the follower stands at the end of the log now
                sender.post(432)
                sender.log.flush()
                posted = True
            titles += [each["title"] for each in told["rows"]]
            rates |= told["rates"]
        connection.close()
    sender.log.close()
    assert titles == ["RDMA_WRITE 432 bytes, QP 0x48"]
    assert set(rates["a"]) == {"down", "read", "up", "wire"}


def test_events_that_come_too_fast_are_counted(tmp_path: Path) -> None:
    from bluebridge.device.buslog.follow import Follower
    from bluebridge.device.buslog.reader import LogReader
    from bluebridge.host_tools.web import lab

    sender = written(tmp_path / "log", 1)
    reader = LogReader(tmp_path / "log")
    look = lab.Look(reader, Follower(reader, at_end=True))
    for _ in range(1000):
        sender.post(8)
    sender.log.flush()
    told = look.next(1.0)
    sender.log.close()
    assert told["events"] == 6000
    assert told["skipped"] == 6000 - lab.ASSEMBLED
    assert 0 < len(told["rows"]) <= lab.ROWS
    assert told["rates"]["a"]["down"] == pytest.approx([1000, 4000], rel=0.01)
    assert told["end"] == 67 + 6000


def test_a_long_activity_is_cut_with_a_word(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bluebridge.host_tools.web.rows.MOST_STEPS", 3)
    found = Book(log).detail(0)
    assert found is not None
    assert len(found["list"]) == 3
    assert found["notes"] == ["the first 3 of 6 steps"]
    assert book_module.SPAN > AFTER


@pytest.mark.parametrize(
    ("words", "why", "status"),
    [
        (["nowhere"], "holds no bus log", 2),
        (["LOG", "--limit", "3"], "--limit is for a page in a file; add --save FILE", 2),
        (["LOG", "--force"], "--force is for a page in a file", 2),
        (["LOG", "--save", "x", "--port", "80"], "has no --port", 2),
        (["LOG", "--profile", "nonsense"], "nonsense", 2),
        (["LOG", "--save", "taken"], "taken exists: name another file or add --force", 1),
        (["LOG", "--save", "/nowhere/x"], "name a file that can be written", 1),
        ([], "nothing runs; start a pair", 1),
    ],
)
def test_bad_input_is_one_line(
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    why: str,
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    Path("taken").write_text("mine")
    given = [str(log) if word == "LOG" else word for word in words]
    assert cli.main(["web", "--no-open", *given]) == status
    said = capsys.readouterr()
    assert why in said.err
    assert said.err.count("\n") == 1
    assert Path("taken").read_text() == "mine"


def test_a_note_of_a_work_request_stands_where_it_happened(tmp_path: Path) -> None:
    """That a message was dropped is told before what came after it."""
    found = Book(posted(tmp_path / "log", size=100, by="fallback", announced=True)).detail(0)
    assert found is not None
    numbers = [step["number"] for step in found["list"]]
    note = next(e.number for e in LogReader(tmp_path / "log") if e.kind is Kind.NOTE)
    assert 0 < note < numbers[-1]
    assert numbers == sorted(numbers)


def test_every_role_has_a_sentence_or_a_text_of_the_log() -> None:
    told = {Role.OTHER, Role.COMMAND, Role.RESET, Role.NOTE, Role.LINK, Role.CONTROL}
    assert set(CAPTIONS) | told == set(Role)
    assert not set(CAPTIONS) & told


def test_each_step_of_a_work_request_is_told(tmp_path: Path) -> None:
    written(tmp_path / "log", 1).log.close()
    _, activities = Book(tmp_path / "log").whole(0, 3, Query())
    first, second, third = ([step["caption"] for step in each["list"]] for each in activities)
    assert first[0] == "the driver stores 4 bytes in its UAR page: go on from entry 0"
    assert first[2] == "the request leaves for the other HCA, with 8 bytes of data"
    assert first[-1].endswith("the work is done")
    assert "64 bytes of entry 1 itself" in second[0]
    assert [third[9].partition(":")[0], third[10].partition(":")[0]] == [
        "the HCA writes an event entry to memory", "the device interrupts the processor",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "status", "word"),
    [
        (ActivityKind.COMMAND, "DUMP_ETH_STATS", "OK", "DUMP_ETH_STATS"),
        (ActivityKind.COMMAND, "DUMP_ETH_STATS", "BAD_PARAM", ""),
        (ActivityKind.COMMAND, "RTR2RTS_QP", "OK", ""),
        (ActivityKind.CONFIG, "config, 3 reads", "", "config access"),
        (ActivityKind.RESET, "device reset", "", ""),
    ],
)
def test_routine_is_what_an_idle_driver_does(
    kind: ActivityKind, name: str, status: str, word: str
) -> None:
    assert routine(Activity(0, kind, "a", "", 0.0, 0.0, status, name=name)) == word


def test_how_memory_is_scattered_is_routine_and_a_mark_is_not(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    device = log.device("a")
    log.tell(device, Fact.MARK, text="half way")
    log.tell(device, Fact.SCATTERED_RING, queue=5, pieces=9, rest=1, bytes=64, first=8)
    log.close()
    assert [routine(each) for each in activities(tmp_path)] == ["", "pieces of memory"]


def test_each_step_names_the_entry_of_its_queue(tmp_path: Path) -> None:
    """The slot counts from RESET on; the work request's number in the log is another one."""
    sender = Sender(tmp_path / "log")
    sender.index = 12
    sender.post(8)
    sender.log.close()
    _, (activity,) = Book(tmp_path / "log").whole(0, 1, Query())
    assert activity["list"][0]["caption"].endswith("go on from entry 12")


def test_the_secret_stands_in_no_command_line(log: Path, tmp_path: Path) -> None:
    """Of any process, the browser's included: that gets a file which only the user may read."""
    os.mkfifo(waits := tmp_path / "waits")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/url\nread _ < {waits}\n')
    browser.chmod(0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "BROWSER": f"{browser} %s &"}
    words = [sys.executable, "-m", "bluebridge.host_tools.cli", "web", str(log)]
    web = subprocess.Popen(words, cwd=HOME, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert web.stdout is not None
        address = web.stdout.readline().split()[-1]
        secret = urlsplit(address).path.strip("/")
        assert len(secret) == 32
        url = tmp_path / "url"
        until(lambda: url.exists() and bool(url.read_text()))
        assert url.read_text().startswith("file:")
        lines = [_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert any(str(browser) in line and url.read_text() in line for line in lines)
        assert not any(secret in line for line in lines)
        door = Path(urlsplit(url.read_text()).path)
        assert stat.S_IMODE(door.stat().st_mode) == 0o600
        assert f"url={address}" in door.read_text()
    finally:
        with contextlib.suppress(OSError):  # the browser reads the end of it
            os.close(os.open(waits, os.O_WRONLY | os.O_NONBLOCK))
        web.terminate()
        web.communicate()
    assert not door.exists()


def _command_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
