"""The page of `bluebridge web` in headless Chromium."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools import cli
from bluebridge.host_tools.pytest_plugin.scratch import write_page
from bluebridge.host_tools.web.book import Book, Page, Query
from bluebridge.host_tools.web.lab import Lab
from bluebridge.host_tools.web.save import page as page_of
from tests.models.analysis_log import A, Sender
from tests.models.queue_log import bring_up, command
from tests.unit.web.browser import Browser, browser
from tests.unit.web.web_site import POSTS, Control, served, shown, written

SECOND = "#rows tr:nth-child(2)"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished log."""
    folder = tmp_path_factory.mktemp("page") / "log"
    written(folder).log.close()
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests here."""
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def page(chromium: Browser, log: Path) -> Iterator[Browser]:
    """The page of the log, with its first activity chosen; its scripts ran without an error."""
    chromium.errors.clear()
    with shown(chromium, log):
        chromium.wait("document.querySelectorAll('#steps tr').length > 3")
        yield chromium
    assert chromium.errors == []


def _rows(page: Browser) -> list[list[str]]:
    script = (
        "[...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    found: list[list[str]] = page.run(script)
    return found


def test_the_page_shows_lab_list_and_steps(page: Browser) -> None:
    """Only rows in sight are in the page."""
    assert page.text("title") == "hosts a and b: log of a test"
    assert 10 < len(_rows(page)) < 100
    assert _rows(page)[0][2:5] == ["a", "work request", "RDMA_WRITE 8 bytes, QP 0x48"]
    assert f"of {67 * POSTS}" in page.text("count")
    boxes = page.run("[...document.querySelectorAll('#drawing text')].map(t => t.textContent)")
    assert {"host a", "host b", "processor", "memory", "root port", "HCA"} <= set(boxes)
    assert page.run("document.getElementById('buttons').children.length") == 0


def test_a_click_plays_the_steps_in_the_drawing(page: Browser) -> None:
    page.run("document.getElementById('speed').value = 400")
    page.click(SECOND)
    page.wait("document.getElementById('place').innerText == 'step 3 of 8'")
    page.click("#run")
    assert "Play" in page.text("run")
    assert page.run("document.querySelectorAll('#drawing .box.lit').length") > 0
    page.click("#back")
    assert page.text("place").startswith("step ")
    page.click("#steps tr:nth-child(7)")
    assert page.text("place") == "step 6 of 8"
    assert "b to memory of b" in page.text("step")
    lit = page.run("[...document.querySelectorAll('#drawing .edge.lit')].length")
    assert lit == 2


def test_keys_choose_step_and_play(page: Browser) -> None:
    page.run("document.querySelector('#rows tr').focus()")
    page.key("ArrowDown")
    page.key("Enter")
    page.wait("document.getElementById('chosen').innerText.includes('150 bytes')")
    page.key(" ")
    assert "Play" in page.text("run")
    before = page.text("place")
    page.key("ArrowRight")
    assert page.text("place") != before
    page.key("ArrowLeft")
    assert page.text("place") == before
    page.key(" ")
    assert "Pause" in page.text("run")
    page.key("Tab")
    assert page.run("document.activeElement.tagName") == "BUTTON"


def test_a_screen_reader_is_told(page: Browser) -> None:
    roles = "['header', 'main', '[role=search]', '[aria-live]', '[role=img]', '[role=toolbar]']"
    assert page.run(f"{roles}.every(each => document.querySelector(each))")
    assert "host a: processor, memory" in page.run(
        "document.getElementById('picture-words').textContent"
    )
    assert page.text("step").startswith("1. processor of a to a: ")
    labelled = (
        "[...document.querySelectorAll('input, select')].every(each => each.closest('label'))"
    )
    assert page.run(labelled)


def test_keys_go_through_the_strip_of_time(page: Browser) -> None:
    """It tells a screen reader where it is, and leaves the step alone."""
    place = page.text("place")
    page.run("document.getElementById('overview').focus()")
    before = page.run("document.getElementById('overview').getAttribute('aria-valuetext')")
    for _ in range(3):
        page.key("ArrowRight")
    said = page.run("document.getElementById('overview').getAttribute('aria-valuetext')")
    assert said != before and "events from event" in said
    assert page.text("place") == place
    page.key("Enter")
    number = int(said.split()[4])
    page.wait(f"document.getElementById('first').value == '{number}'")
    page.wait(f"Number(document.querySelector('#rows tr').dataset.number) >= {number}")


def test_the_axis_of_time_is_zoomed_and_dragged(page: Browser) -> None:
    """By keys, buttons and the pointer: less time is shown, counted anew, then a later time."""
    since, until = "theAxis.data.since", "theAxis.data.until"
    page.run("document.getElementById('overview').focus()")
    whole = page.run(f"{until} - {since}")
    page.key("ArrowRight")
    page.key("+")
    page.wait(f"{until} - {since} < {0.51 * whole}")
    page.click("#closer")
    page.wait(f"{until} - {since} < {0.26 * whole}")
    before = page.run(since)
    page.drag("#overview", -300)
    page.wait(f"{since} > {before}")
    assert page.run(f"{until} - {since} < {0.26 * whole}")
    page.click("#whole")
    page.wait(f"Math.abs({until} - {since} - {whole}) < 1e-9")
    lanes = page.run("[...document.querySelectorAll('#overview text')].map(t => t.textContent)")
    assert lanes[:4] == ["a", "b", "wire", "faults"]


def test_what_went_wrong_stands_on_the_axis(chromium: Browser, tmp_path: Path) -> None:
    """A click on a drop goes to its event."""
    sender = written(tmp_path / "log", 1)
    time.sleep(0.1)  # in which nothing happens: a gap on the axis, however quick the machine is
    sender.tell(Fact.RULE, rule=1, verb="drops", direction="out", message="frames")
    sender.post(8)
    sender.log.close()
    number = next(e.number for e in LogReader(tmp_path / "log") if e.kind is Kind.FAULT)
    with shown(chromium, tmp_path / "log"):
        chromium.wait("document.querySelectorAll('#overview .wrong').length == 1")
        chromium.wait("document.querySelectorAll('#fields tr').length > 0")  # all is drawn
        assert "rule 1 drops" in chromium.run(
            "document.querySelector('#overview .wrong title').textContent"
        )
        assert chromium.run("document.querySelectorAll('#overview .gap').length") > 0
        chromium.click("#overview .wrong")
        chromium.wait(f"document.querySelector('#rows tr').dataset.number >= {number}")


SCREENS = [(1500, 950), (390, 844)]


def _boxes(page: Browser, selector: str) -> list[dict[str, float]]:
    """Where the elements that match are seen, in pixels."""
    script = (
        f"[...document.querySelectorAll({selector!r})].map(e => e.getBoundingClientRect().toJSON())"
    )
    found: list[dict[str, float]] = page.run(script)
    return found


def _apart(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        one["right"] <= other["left"]
        or other["right"] <= one["left"]
        or one["bottom"] <= other["top"]
        or other["bottom"] <= one["top"]
    )


@pytest.fixture(params=SCREENS, ids=lambda size: f"{size[0]}x{size[1]}")
def screen(
    chromium: Browser, log: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Browser, int]]:
    """The page on a screen of that size, and the screen's height; nothing moves by itself."""
    chromium.size(*request.param)
    chromium.still()
    try:
        with shown(chromium, log):
            chromium.wait("document.querySelectorAll('#fields tr').length > 0")
            yield chromium, request.param[1]
    finally:
        chromium.size(1500, 950)


def test_controls_stay_and_the_step_is_in_sight(screen: tuple[Browser, int]) -> None:
    """While one steps the controls do not move, and the step's row is below them."""
    page, height = screen
    page.click("#rows tr:nth-child(3)")
    page.wait("document.getElementById('chosen').innerText.includes('100 bytes')")
    page.run("player.pause()")
    tops, steps = [], page.run("player.steps.length")
    assert steps > 6
    for number in range(1, steps + 1):
        page.wait(f"document.getElementById('place').innerText.startsWith('step {number} of')")
        (controls,), (now,), (row,) = (
            _boxes(page, each) for each in ("#controls", "#now", "#steps tr.now")
        )
        tops.append(controls["top"])
        assert controls["top"] >= 0 and controls["bottom"] <= height
        assert now["bottom"] - 1 <= row["top"] and row["bottom"] <= height + 1, number
        page.click("#on")
    assert max(tops) - min(tops) < 2


def test_most_steps_are_seen_at_once(screen: tuple[Browser, int]) -> None:
    page, height = screen
    page.click("#rows tr:nth-child(3)")
    page.wait("document.getElementById('chosen').innerText.includes('100 bytes')")
    page.run("player.pause()")
    rows = _boxes(page, "#steps tr:not(:first-child)")
    assert sum(row["top"] >= 0 and row["bottom"] <= height for row in rows) >= len(rows) - 2


def test_no_activity_is_cut_and_no_letter_is_small(screen: tuple[Browser, int]) -> None:
    page, _ = screen
    titles = "[...document.querySelectorAll('#rows td:nth-child(5)')]"
    cut = f"{titles}.filter(cell => cell.scrollWidth > cell.clientWidth)"
    assert page.run(f"{cut}.map(cell => cell.innerText)") == []
    letters = """[...document.querySelectorAll('#drawing text')].map(each =>
        parseFloat(getComputedStyle(each).fontSize) * player.drawing.picture.getScreenCTM().a)"""
    assert min(page.run(letters)) >= 8.5


def test_the_dot_covers_no_name(screen: tuple[Browser, int]) -> None:
    page, _ = screen
    for _ in range(page.run("player.steps.length")):
        (dot,) = _boxes(page, "#drawing .dot")
        names = [name for name in _boxes(page, "#drawing text") if name["width"]]
        assert all(_apart(dot, name) for name in names)
        page.click("#on")


def test_the_axis_marks_the_step_and_says_its_colours(screen: tuple[Browser, int]) -> None:
    page, _ = screen
    assert {"host a", "host b", "this step", "no events"} <= set(page.text("legend").split("\n"))
    page.run("theAxis.look(theAxis.begin, player.chosen.at + player.steps.at(-1).us / 1e6)")
    (first,) = _boxes(page, "#overview .step")
    while not page.run("document.getElementById('on').disabled"):
        page.click("#on")
    (last,) = _boxes(page, "#overview .step")
    assert first["left"] < last["left"]


@pytest.mark.parametrize("width", [390, 820])
def test_the_page_fits_a_small_screen(chromium: Browser, log: Path, width: int) -> None:
    """Nothing is cut at the right; the list leaves room for what is below it."""
    chromium.size(width, 844)
    try:
        with shown(chromium, log):
            chromium.wait("document.querySelectorAll('#fields tr').length > 0")
            assert chromium.run("document.documentElement.scrollWidth") <= width
            assert chromium.run("document.getElementById('list').clientHeight") < 844 / 2
    finally:
        chromium.size(1500, 950)


@pytest.mark.parametrize("width", [1500, 390])
def test_the_states_of_a_queue_pair_stand_in_a_diagram(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    """At the step that is shown and at the end of the log, with the ways it took."""
    sender = Sender(tmp_path / "log")
    bring_up(sender)
    sender.post()
    command(sender, "TOERR_QP")
    sender.log.close()
    chromium.size(width, 844)
    with shown(chromium, tmp_path / "log"):
        told = "document.getElementById('paired').innerText"
        chromium.wait(f"{told} === 'RTS since event 5; at the end of the log ERR since event 12'")
        assert chromium.run("$('pair').selectedOptions[0].text") == "a 0x48"
        ways = "[...document.querySelectorAll('#states .way')].map(each => each.classList[1])"
        assert sorted(filter(None, chromium.run(ways))) == ["later", "taken", "taken", "taken"]
        words = chromium.run("document.getElementById('states-words').textContent")
        assert "RST to INIT at event 1, INIT to RTR at event 3" in words
        assert chromium.run("document.documentElement.scrollWidth") <= width
        cells = "[...document.querySelectorAll('#rings tr')].map(each => each.innerText)"
        rings = chromium.run(cells)
        assert [" ".join(each.split()) for each in rings] == [
            "ring at this step at the end of the log",
            "send ring 64 slots producer 0 consumer 0 producer 1 consumer 1",
        ]
        chromium.click("#rows tr:last-child")  # the command itself
        chromium.wait(f"{told}.startsWith('ERR since event 12')")
    chromium.size(1500, 950)


def test_search_and_pages(page: Browser) -> None:
    page.run("document.getElementById('text').value = 'MSI-X vector'")
    page.click("#filters button")
    page.wait(
        "[...document.querySelectorAll('#rows tr')].every(r => r.innerText.includes('100 bytes'))"
    )
    page.run("document.getElementById('text').value = '0x500000'")  # the address of event entries
    page.click("#filters button")
    assert page.text("count").startswith("searching")
    page.wait("document.getElementById('count').innerText.includes(' activities; ')")
    assert {cells[4] for cells in _rows(page)} == {"RDMA_WRITE 100 bytes, QP 0x48"}
    page.run("document.getElementById('text').value = ''")
    page.click("#filters button")
    page.wait("document.querySelector('#rows tr').innerText.includes('RDMA_WRITE 8 bytes')")
    first = _rows(page)[0][0]
    page.click("#later")
    page.wait(f"document.querySelector('#rows tr').dataset.number != {first}")
    # A busy machine has less of the log in a page, so that it takes several to come back.
    page.wait(
        f"""(() => {{
            const here = document.querySelector('#rows tr').dataset.number;
            const turn = here != {first} && window.turned != here;
            if (turn) document.getElementById('earlier').click();
            window.turned = here;
            return here == {first};
        }})()"""
    )


def test_buttons_of_a_running_lab(chromium: Browser, log: Path, tmp_path: Path) -> None:
    control = Control(tmp_path / "c")
    with shown(chromium, log, tmp_path / "c"):
        chromium.wait("document.querySelectorAll('#buttons button').length == 4")
        chromium.click("#buttons button")
        chromium.wait("document.querySelector('#buttons button').innerText == 'Plug in cable a/1'")
        chromium.wait("document.querySelectorAll('#drawing .out').length == 1")
        chromium.click("#buttons button:nth-child(2)")
        chromium.wait("document.getElementById('said').innerText.includes('HCA has failed')")
        assert control.lines == ["link a/1 down", "fault a"]
        control.close()
        chromium.wait("document.getElementById('said').innerText.includes('does not answer')")


def test_new_activities_appear_while_a_page_is_open(chromium: Browser, tmp_path: Path) -> None:
    sender = written(tmp_path / "log", 1)
    with shown(chromium, tmp_path / "log"):
        chromium.wait("document.querySelectorAll('#rows tr').length == 3")
        chromium.run("document.getElementById('follow').checked = true")
        chromium.wait("document.querySelector('#drawing') && performance.now() > 1000")
        sender.post(432)
        sender.log.flush()
        chromium.wait("document.getElementById('rows').innerText.includes('432 bytes')")
    sender.log.close()


def test_rows_that_follow_stand_once_and_in_order(page: Browser) -> None:
    """An activity comes again when it has ended, and after some that began later than it."""
    row = "{...row, number: %d, steps: %d}"
    shown = ", ".join(row % (number, 1) for number in (3, 5))
    fresh = ", ".join(row % (number, 2) for number in (8, 4, 5))
    page.run(
        f"""(() => {{
            const row = {{at: 0, device: "a", kind: "note", title: "", us: 0, status: ""}};
            const list = new List({{wanted: undefined}}, {{first: 0, end: 6}});
            document.getElementById("follow").checked = true;
            list.show([{shown}], 3, 6);
            list.add({{rows: [{fresh}], end: 9, skipped: 0}});
        }})()"""
    )
    assert [(cells[0], cells[5]) for cells in _rows(page)] == [
        ("3", "1"), ("4", "2"), ("5", "2"), ("8", "2"),
    ]  # fmt: skip


def test_the_page_of_a_failed_test_opens_where_it_failed(chromium: Browser, tmp_path: Path) -> None:
    """Else at the last work request, so not at the config reads with which a test begins."""
    for name, commands, wanted in (
        ("command", (("QUERY_FW", "OK"), ("MAP_FA", "BAD_PARAM")), "MAP_FA"),
        ("write", (), "RDMA_WRITE 100 bytes"),
    ):
        sender = Sender(tmp_path / name)
        for _ in range(40):
            sender.log.record(A, Kind.CONFIG_READ, 0, 0, 4, bytes(4))
        for _ in range(50):
            sender.post(100)
        for each, status in commands:
            sender.command(each, status)
        for _ in range(40):
            sender.log.record(A, Kind.CONFIG_READ, 0, 0, 4, bytes(4))
        sender.log.close()
        path = write_page(tmp_path / name, "tests/test_x.py::test_y")
        assert path is not None
        chromium.errors.clear()
        chromium.open(path.as_uri())
        chromium.wait(f"document.getElementById('chosen').innerText.includes('{wanted}')")
        chosen = "document.querySelector('#rows tr[aria-selected=true]').getBoundingClientRect()"
        list_box = "document.getElementById('list').getBoundingClientRect()"
        chromium.wait(f"{chosen}.top >= {list_box}.top && {chosen}.bottom <= {list_box}.bottom")
        assert chromium.errors == []


def test_a_page_of_a_log_that_grows_names_no_event_behind_its_end(tmp_path: Path) -> None:
    sender = written(tmp_path / "log", 1)

    class Growing(Book):
        """A book whose log goes on when it is opened."""

        def whole(
            self, first: int, count: int, query: Query, *, at_end: bool = False
        ) -> tuple[Page, list[dict[str, Any]]]:
            sender.post(8)
            sender.log.flush()
            return super().whole(first, count, query, at_end=at_end)

    lab = Lab(LogReader(tmp_path / "log"), "log of a test", None)
    for most in (1000, 2, 1):
        pieces = b"".join(page_of(lab, Growing(tmp_path / "log"), 3, most, at_end=True))
        said = re.search(r"(\d+) (\w+), of events (\d+) to (\d+) of a log of (\d+) ", str(pieces))
        assert said is not None
        assert said[2] == ("activity" if said[1] == "1" else "activities")
        count, first, last, length = map(int, said.group(1, 3, 4, 5))
        assert 3 <= first < last < length
        assert count <= most
        assert (first > 40) == (most <= 2)
    sender.log.close()


def test_a_saved_page_needs_nothing_else(chromium: Browser, log: Path, tmp_path: Path) -> None:
    """It says how much of the log it holds, decodes on a click, and its only address is a name."""
    words = ["web", str(log), "--save", str(tmp_path / "page.html"), "--limit", "90"]
    assert cli.main([*words, "--profile", "system-x"]) == 0
    text = (tmp_path / "page.html").read_text()
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    chromium.errors.clear()
    chromium.open((tmp_path / "page.html").as_uri())
    chromium.wait("document.querySelectorAll('#steps tr').length > 3")
    assert chromium.text("title") == "hosts a and b: log log"
    assert chromium.text("count").startswith("90 activities, of events 0 to ")
    assert f"of a log of {67 * POSTS} events; --limit and --event" in chromium.text("count")
    chromium.run("document.getElementById('text').value = 'vector 1'")
    chromium.click("#filters button")
    chromium.wait("document.getElementById('count').innerText.startsWith('30 activities')")
    chromium.click(SECOND)
    chromium.wait("document.getElementById('chosen').innerText.includes('100 bytes')")
    assert "modelled" in chromium.text("steps")
    assert chromium.errors == []


def test_data_of_a_saved_page_cannot_end_its_script(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "<script>"
    written(folder, 1).log.close()
    assert cli.main(["web", str(folder), "--save", str(page), "--limit", "3"]) == 0
    data = page.read_text().partition("const SAVED = ")[2].partition(";\n")[0]
    assert "<" not in data
    assert json.loads(data.replace(",\n]", "]"))["activities"][0]["steps"] == 6


def _busy(folder: Path) -> Sender:
    """A log with a driver's polling before and behind the first work request, and a mark."""
    sender = Sender(folder)
    for _ in range(300):
        sender.command("DUMP_ETH_STATS")
    sender.post(8)
    for _ in range(20):
        sender.command("QUERY_IF_STAT")
    sender.command("DUMP_ETH_STATS", "BAD_PARAM")
    return sender


def test_the_page_opens_on_the_first_work_request(chromium: Browser, tmp_path: Path) -> None:
    """It is played with a sentence at each step; polling is one line, shown on demand."""
    _busy(tmp_path / "log").log.close()
    chromium.errors.clear()
    with shown(chromium, tmp_path / "log"):
        chromium.wait("document.getElementById('chosen').innerText.includes('RDMA_WRITE 8 bytes')")
        assert "stores 4 bytes in its UAR page: go on from entry 0" in chromium.text("step")
        assert "UAR[128].send qpn=0x48" in chromium.text("step")
        kinds = [cells[3] for cells in _rows(chromium)]
        assert kinds == ["polling", "work request", "polling", "command"]
        assert "300 DUMP_ETH_STATS" in _rows(chromium)[0][4]
        chromium.click("#rows tr:nth-child(3)")
        assert len(_rows(chromium)) == 4 + 20
        chromium.run("document.querySelector('#rows tr:nth-child(3)').focus()")
        chromium.key("Enter")
        assert len(_rows(chromium)) == 4
        chromium.click("#routine")
        assert {cells[3] for cells in _rows(chromium)} == {"command"}  # three hundred of them
    assert chromium.errors == []


def test_names_and_texts_of_a_log_are_text(chromium: Browser, tmp_path: Path) -> None:
    """Hosts, devices, node descriptions and marks, in a served and in a saved page."""
    name = "<img src=x onerror='window.hit=1'>"
    sender = Sender(tmp_path / "log")
    sender.log.device(name)
    sender.post(8)
    text = f"node description {name}"
    for device in (A, 2):
        sender.host()
        sender.log.tell(device, Fact.INTERNAL_ERROR, reason=text)
        sender.log.tell(device, Fact.COMMAND, name="RST2INIT_QP", in_mod=0x49, status="OK")
    sender.tell(Fact.MARK, text=f"{name}<b>bold</b>")
    sender.log.close()
    path = tmp_path / "page.html"
    assert cli.main(["web", str(tmp_path / "log"), "--save", str(path)]) == 0
    with served(tmp_path / "log", title=name) as address:
        for each in (address, path.as_uri()):
            chromium.open(each)
            chromium.wait("document.getElementById('rows').innerText.includes('description <img')")
            chromium.wait("document.querySelectorAll('#overview text').length > 3")
            if each == address:
                chromium.wait("document.getElementById('pair').textContent.includes('<img src')")
            chromium.click("#rows tr:last-child")
            chromium.wait("document.getElementById('steps').innerText.includes('<b>bold</b>')")
            assert "<b>bold</b>" in chromium.text("rows")
            assert chromium.run("document.querySelectorAll('main b, body img').length") == 0
            assert chromium.run("window.hit === undefined")
        chromium.open("about:blank")


def test_a_browser_without_scripts_is_told(chromium: Browser, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert cli.main(["web", str(log), "--save", str(path), "--limit", "3"]) == 0
    chromium.scripts(on=False)
    try:
        chromium.open(path.as_uri())
        text = "document.querySelector('noscript')"
        chromium.wait(f"{text} && {text}.innerText.includes('This page needs scripts')")
    finally:
        chromium.open("about:blank")
        chromium.scripts(on=True)
