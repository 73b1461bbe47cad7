"""axe finds nothing to mend in any view of the page, and its text is readable in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools import cli
from bluebridge.host_tools.web.app import STATIC
from bluebridge.host_tools.web.lab import Lab
from bluebridge.host_tools.web.side_by_side import SideBySide
from tests.models.analysis_log import Sender
from tests.models.queue_log import bring_up, failed_send, make_rings
from tests.unit.web.browser import Browser, browser
from tests.unit.web.web_site import Control, served, serving, written

AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
RUN = f"""axe.run({{runOnly: {RULES}}}).then(found =>
    found.violations.map(each => [each.id, each.nodes.map(node => node.html)]))"""


def _log(folder: Path) -> Sender:
    """A log with a fault, a command that failed, a queue pair that failed, and polling."""
    sender = Sender(folder)
    bring_up(sender)
    make_rings(sender)
    for _ in range(9):
        sender.post()
    sender.tell(Fact.RULE, rule=1, verb="drops", direction="out", message="frames")
    sender.command("MAP_FA", "BAD_PARAM")
    for _ in range(5):
        sender.command("DUMP_ETH_STATS")
    failed_send(sender)
    sender.log.flush()
    return sender


@pytest.fixture(scope="module", params=["light", "dark"])
def chromium(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("axe")) as found:
        if request.param == "dark":
            found.dark()
        yield found


def _check(page: Browser) -> None:
    page.run(f"{AXE}; true")
    assert page.run(RUN) == []


@pytest.mark.brief("light-1500", "dark-390")
@pytest.mark.parametrize("width", [1500, 390])
def test_axe_finds_nothing_on_the_page_of_a_lab(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    control = Control(tmp_path / "c")
    _log(tmp_path / "log")
    chromium.size(width, 850)
    with served(tmp_path / "log", tmp_path / "c") as address:
        chromium.open(address)
        chromium.wait("document.querySelectorAll('#fields tr').length > 0")
        chromium.wait("document.querySelectorAll('#overview .wrong').length > 0")
        chromium.wait("document.querySelectorAll('#states .later').length > 0")
        chromium.wait("document.querySelectorAll('#rings .round').length > 3")
        _check(chromium)
        chromium.click("#routine")
        chromium.click("#rows tr.bad")
        chromium.wait("document.getElementById('chosen').innerText.includes('MAP_FA')")
        _check(chromium)
        chromium.open(f"{address}reference/mlx4-wqe")
        chromium.wait("document.querySelectorAll('td').length > 0")
        _check(chromium)
        chromium.open("about:blank")
    control.close()
    chromium.size(1500, 950)


@pytest.mark.brief("dark")
def test_axe_finds_nothing_on_two_logs_and_on_a_saved_page(
    chromium: Browser, tmp_path: Path
) -> None:
    for name, rounds in (("one", 1), ("other", 2)):
        _log(tmp_path / name).log.close()
        written(tmp_path / f"short-{name}", rounds).log.close()
    logs = [Lab(LogReader(tmp_path / name), name) for name in ("one", "short-other")]
    with serving(SideBySide(logs[0], logs[1]).application()) as address:
        chromium.open(address)
        chromium.wait("document.getElementById('first') !== null")
        _check(chromium)
        chromium.open("about:blank")
    path = tmp_path / "page.html"
    assert cli.main(["web", str(tmp_path / "one"), "--save", str(path)]) == 0
    chromium.open(path.as_uri())
    chromium.wait("document.querySelectorAll('#steps tr').length > 3")
    _check(chromium)


THEMES = re.findall(r":root \{(.*?)\}", (STATIC / "page.css").read_text(), re.DOTALL)
TEXT, LARGE = 4.5, 3.0


def _colours(theme: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))


def _brightness(colour: str) -> float:
    """The relative luminance of WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_brightness(one), _brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_text_is_readable_on_every_ground(theme: str) -> None:
    colours = _colours(theme)
    grounds = [colours[name] for name in ("back", "panel", "chosen", "box")]
    for name in ("text", "dim", "bad", "a", "b"):
        low = min(_contrast(colours[name], ground) for ground in grounds)
        assert low >= TEXT, (name, low)
    assert min(_contrast(colours["lit"], ground) for ground in grounds) >= LARGE
