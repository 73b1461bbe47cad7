"""The page of `bluebridge log --html` in headless Chromium."""

from __future__ import annotations

import argparse
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bluebridge.device.buslog import cli
from tests.unit.analysis_log import Sender

BROWSER = (
    "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9",
    "--virtual-time-budget=5000", "--window-size=1400,900", "--dump-dom",
)  # fmt: skip
"""The proxy does not exist, so that any use of a network fails."""


class Rows(HTMLParser):
    """The text of the cells of `#rows`, and what else there is, by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.count = ""
        self.arrows = 0
        self.timelines = 0
        self.parts = 0
        self._place = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._place = found.get("id") or self._place
        self.timelines += tag == "svg"
        self.arrows += found.get("class") == "flow"
        if tag == "tr" and self._place == "rows" and "id" not in found:
            self.rows.append([])
        self.parts += tag == "tr" and self._place == "parts"
        self._cell = tag == "td" and self._place == "rows"

    def handle_data(self, data: str) -> None:
        if self._place == "count" and not self.count:
            self.count = data.strip()
        if self._cell and self.rows:
            self.rows[-1].append(data)
            self._cell = False


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 3,000 requests, a third of them fallbacks of 100 bytes."""
    folder = tmp_path_factory.mktemp("page")
    sender = Sender(folder / "log")
    for _ in range(1000):
        sender.post(8)
        sender.post(150, by="blueflame", inline=True)
        sender.post(100, by="fallback", announced=True)
    sender.log.close()
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    words = [str(folder / "log"), "--html", str(folder / "page.html"), "--profile", "system-x"]
    assert cli.main(parser.parse_args(words)) == 0
    return folder / "page.html"


def _shown(page: Path, state: str = "") -> Rows:
    done = subprocess.run(
        [*BROWSER, f"{page.as_uri()}#{state}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return Rows(done.stdout)


def test_the_page_loads_nothing(page: Path) -> None:
    """The page loads nothing: its only address is that of a format."""
    assert set(re.findall(r"https?://[^\"'\s)]+", page.read_text())) == {
        "http://www.w3.org/2000/svg"
    }


def test_table_parts_and_timelines(page: Path) -> None:
    """Only visible rows are in the page; wall and modelled time have a timeline each."""
    shown = _shown(page)
    assert shown.count == "3000 of 3000"
    assert 10 < len(shown.rows) < 100
    assert shown.rows[0][:5] == ["0", "a", "0x48", "0", "RDMA_WRITE"]
    assert shown.timelines == 2
    assert shown.arrows > 6


def test_the_address_contains_filters_and_the_chosen_request(page: Path) -> None:
    shown = _shown(page, "by=fallback&least=50&request=5")
    assert shown.count == "1000 of 3000"
    assert {row[7] for row in shown.rows} == {"fallback"}
    assert {row[5] for row in shown.rows} == {"100"}
    assert shown.parts == 1 + 3 + 7  # a head, three lines, and what followed them
    assert _shown(page, "least=5000").count == "0 of 3000"
