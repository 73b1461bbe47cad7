"""The site of `make docs`: complete, strict about links, and without anything from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.models.house import HOME
from tests.unit.web.browser import browser

OUTSIDE = re.compile(
    r"""<(?:script|link rel="?stylesheet"?|img|iframe)[^>]*(?:src|href)="?https?:"""
)
HABITS = ("PETracer", "Wireshark", "Perfetto", "sysfs", "perf script")
FILE_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#:]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"`bluebridge ([a-z]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the API reference."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=HOME,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    names = {path.stem for path in (HOME / "docs").glob("*.md")} | {"registers", "fields"}
    assert {path.stem for path in site.glob("*.html")} >= names | {"index", "api-reference"}
    index = (site / "search" / "search_index.json").read_text()
    assert all(f'"{name}.html' in index for name in names)


def test_links_of_the_sources_lead_to_files() -> None:
    """Who reads the pages in the tree has no page that only the site has."""
    pages = [*HOME.glob("*.md"), *(HOME / "docs").glob("*.md")]
    links = [(page, name) for page in pages for name in FILE_LINK.findall(page.read_text())]
    assert len(links) > 200
    lost = [(page.name, name) for page, name in links if not (page.parent / name).exists()]
    assert lost == []


def test_the_readme_names_every_command_and_page() -> None:
    from bluebridge.host_tools.arguments import COMMANDS

    text = (HOME / "README.md").read_text()
    assert COMMANDS.keys() - set(re.findall(r"bluebridge (\w+)", text)) == set()
    pages = {f"docs/{path.name}" for path in (HOME / "docs").glob("*.md")}
    assert pages - set(FILE_LINK.findall(text)) == set()


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    pages = list(site.glob("*.html"))
    found = {path.name: OUTSIDE.findall(path.read_text(encoding="utf-8")) for path in pages}
    assert [name for name, lines in found.items() if lines] == []


@pytest.mark.full
def test_the_reference_has_what_programs_use(tmp_path: Path) -> None:
    """The pages have the interfaces that the Makefile asks for, with their texts."""
    makefile = (HOME / "Makefile").read_text().replace("\\\n", " ")
    (names,) = re.findall(r"^API := (.*)$", makefile, re.MULTILINE)
    words = [sys.executable, "-m", "pdoc", "--docformat", "markdown", "-o", str(tmp_path)]
    done = subprocess.run([*words, *names.split()], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = "".join(path.read_text() for path in tmp_path.rglob("*.html"))
    for name in ("QueuePair.post_send", "ProtectionDomain.reg_mr", "LogReader.events", "wait_for"):
        assert name in text, name
    assert not OUTSIDE.findall(text)


def test_habits_name_commands_that_there_are() -> None:
    from bluebridge.host_tools.arguments import COMMANDS

    text = (HOME / "docs" / "habits.md").read_text()
    assert all(f"**{habit}**" in text for habit in HABITS)
    assert set(COMMAND.findall(text)) <= COMMANDS.keys()


@pytest.mark.parametrize(
    "page, program",
    [
        ("verbs.md", "send_receive.py"),
        ("hostile-peer.md", "hostile_peer.py"),
        ("break-my-driver.md", "../tests/vm/test_break_my_driver.py"),
    ],
)
def test_a_page_shows_the_program_that_is_tested(page: str, program: str) -> None:
    text = (HOME / "docs" / page).read_text()
    assert f"```python\n{(HOME / 'docs' / program).read_text()}```\n" in text


def test_the_excerpt_of_the_readme_is_of_the_walk_and_says_what_is_drawn() -> None:
    """Who compares it with a run of theirs finds other queue pairs and keys."""
    readme, walk = ((HOME / name).read_text() for name in ("README.md", "docs/iteration.md"))
    line = re.compile(r"^    (\d+\.\d{6} [ab] .*)$", re.MULTILINE)
    excerpt, lines = ([" ".join(each.split()) for each in line.findall(t)] for t in (readme, walk))
    assert len(excerpt) == 10
    assert excerpt == lines[: len(excerpt)]
    for text in (readme, walk):
        before = text[: text.index(line.findall(text)[0])]
        assert "at random" in " ".join(before.split())


class _Text(HTMLParser):
    """The text of a page in which words are linked, its links, and the words that are linked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self._inside: list[str] = []
        self.feed(page.partition("<article")[2].partition("</article>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name == "href" and value]
        if tag in ("a", "code", "pre", "h1", "h2", "h3", "h4"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)


def _glossary() -> list[str]:
    rows = (HOME / "docs" / "glossary.md").read_text().splitlines()
    found = [line.split("|")[1].strip() for line in rows if line.startswith("| ")]
    return [word for word in found if word != "word"]


def test_words_of_the_glossary_are_linked_at_their_first_use(site: Path) -> None:
    """On each page: no word stands in its text without one link to its row."""
    words = _glossary()
    assert len(words) > 40
    rows = set(re.findall(r'<tr id="([\w-]+)"', (site / "glossary.html").read_text()))
    assert rows == {word.lower() for word in words}
    unlinked, linked = [], 0
    for path in site.glob("*.html"):
        if path.stem in ("glossary", "404"):
            continue
        page = _Text(path.read_text(encoding="utf-8"))
        text = " ".join(page.text)
        for word in words:
            count = page.links.count(f"glossary.html#{word.lower()}")
            linked += count
            assert count <= 1, (path.name, word)
            if not count and re.search(rf"(?<![\w-]){word}s?(?![\w-])", text):
                unlinked.append((path.name, word))
    assert unlinked == []
    assert linked > 300


def test_every_page_is_reached_from_the_first_by_links_in_texts(site: Path) -> None:
    """The navigation lists all; a reader who follows the texts finds all, too."""
    reached, left = {"index.html"}, ["index.html"]
    while left:
        page = _Text((site / left.pop()).read_text(encoding="utf-8"))
        for link in page.links:
            name = link.partition("#")[0]
            if name not in reached and (site / name).is_file() and name.endswith(".html"):
                reached.add(name)
                left.append(name)
    assert {path.name for path in site.glob("*.html")} - reached - {"404.html"} == set()


def test_the_example_of_the_explanation_plays(site: Path, tmp_path: Path) -> None:
    """Without a lab and without a server: a work request opens, with a sentence at each step."""
    assert 'href="play.html"' in (site / "how-it-works.html").read_text()
    with browser(tmp_path) as chromium:
        chromium.open((site / "play.html").as_uri())
        chromium.wait("document.getElementById('chosen').innerText.includes('RDMA_WRITE 8 bytes')")
        assert "stores 4 bytes in its UAR page" in chromium.text("step")
        chromium.click("#on")
        assert "the HCA fetches entry 0" in chromium.text("step")
        assert chromium.errors == []


def test_the_reference_has_a_page_for_each_subject(site: Path) -> None:
    """No page of tables is as long as all of them were together."""
    pages = {path.stem: path.read_text().count("<tr>") for path in site.glob("registers-*.html")}
    assert {"registers-mlx4-wqe", "registers-ntb", "registers-net"} <= pages.keys()
    assert max(pages.values()) < sum(pages.values()) / 4
