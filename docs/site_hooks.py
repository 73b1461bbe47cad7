"""Hooks of `make docs`: README as front page, pages made from tables, links of files and words."""

from __future__ import annotations

import html as entities
import posixpath
import re
import tempfile
from functools import cache
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout import reference
from bluebridge.device.mlx4.commands.field_words import page as field_words
from bluebridge.host_tools.web import save
from bluebridge.host_tools.web.book import Book
from bluebridge.host_tools.web.lab import Lab
from tests.models.analysis_log import Sender
from tests.mutants.page import text as mutants

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_API = """\
# API reference

Made from the docstrings: <a href="api/index.html">guest.verbs, the pytest plugin, the reader of
the bus log and its model</a>.
"""
_BESIDE = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
"""Documents that stand beside the folder, with their names on the site."""
_MADE_FROM = {
    "device/layout/reference.py": "registers.md",
    "device/mlx4/commands/field_words.py": "fields.md",
    "tests/mutants/tables": "mutants.md",
    "guest/verbs": "api-reference.md",
}
"""Where the pages come from that only the site has: a link to there is one to the page."""
_REGISTERS = "registers-"
_SECTIONS = {
    "Start": ("index.md", "glossary.md"),
    "Tutorials": ("tour.md", "verbs.md", "hello-adapter.md", "iteration.md"),
    "How-to guides": (
        "lab.md", "host-peers.md", "hosts.md", "habits.md", "from-petracer.md", "from-wireshark.md",
        "from-soft-roce.md", "soft-roce.md", "break-my-driver.md", "testing.md", "ci.md",
        "container.md", "faults.md", "atlas.md", "capture.md", "mmiotrace.md", "c-program.md",
        "kmod.md", "connectx5.md",
        "your-kernel.md", "guest-image.md", "agent.md", "ipxe.md", "dpdk.md", "rtrs-lab.md",
        "sweep.md",
    ),
    "Explanations": (
        "how-it-works.md", "architecture.md", "blueflame.md", "ethernet.md", "infiniband.md",
        "ntb.md", "ntrdma.md", "rtrs.md", "hostile-peer.md", "security.md", "wire.md",
    ),
    "Reference": (
        "show.md", "fingerprint.md", "analyzer.md", "web.md", "krping.md", "tlp-capture.md",
        "rtrs-files.md", "clauses.md", "api-reference.md", "fields.md", "registers.md",
    ),
    "The project": (
        "contributing.md", "changes.md", "conformance.md", "ntb-conformance.md",
        "soft-roce-conformance.md", "ethernet-conformance.md", "connectx5-conformance.md",
        "benchmarks.md", "fuzzing.md", "mutants.md",
    ),
}  # fmt: skip
"""The site's navigation; every page has a place in it."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from tables, and the documents that stand beside the folder."""
    made = {"api-reference.md": _API, "fields.md": field_words(), "mutants.md": mutants()}
    made["registers.md"] = reference.contents()
    for subject, text in reference.pages().items():
        made[f"{_REGISTERS}{subject}.md"] = f"# Reference: {subject}\n\n{text}"
    for name, target in _BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text.replace("(docs/", "(").replace('"docs/', '"')
        for other, there in _BESIDE.items():
            text = text.replace(f"({other}", f"({there}")
        made[target] = text
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Sort the pages into sections. Raises `PluginError` for one that has no place."""
    pages = {page.file.src_uri: page for page in nav.pages}
    tables = tuple(name for name in pages if name.startswith(_REGISTERS))
    named = {name for names in _SECTIONS.values() for name in names}
    if lost := pages.keys() - named - set(tables):
        raise PluginError(f"no place in docs/site_hooks.py: {', '.join(sorted(lost))}")
    sections = {**_SECTIONS, "Registers and packets": tables}
    nav.items = []
    for title, names in sections.items():
        section = Section(title, [pages[name] for name in names if name in pages])
        for page in section.children:
            page.parent = section
        nav.items.append(section)
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A link to a file of the source tree is its path; the site has pages only."""

    def mended(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or files.get_file_from_path(_inside(page, target)) is not None:
            return match[0]
        beside = _BESIDE.get(target.removeprefix("../"))
        if beside is not None:
            return f"[{text}]({beside}{anchor})"
        path = posixpath.normpath(posixpath.join("docs", target))
        if not (ROOT / path).exists():
            return match[0]  # mkdocs tells of it
        if path in _MADE_FROM:
            return f"[{text}]({_MADE_FROM[path]})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(mended, markdown)


def _inside(page: Page, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))


def on_post_build(config: MkDocsConfig) -> None:
    """Write the example that plays in a browser: three work requests, as one page."""
    with tempfile.TemporaryDirectory() as folder:
        sender = Sender(Path(folder) / "log")
        sender.post(8, inline=False, announced=True)
        sender.post(150, by="blueflame")
        sender.post(100, by="fallback", announced=True)
        sender.log.close()
        reader = LogReader(Path(folder) / "log")
        lab, book = Lab(reader, "an example"), Book(reader.folder)
        pieces = save.page(lab, book, 0, limit=10)
        (Path(config.site_dir) / "play.html").write_bytes(b"".join(pieces))


GLOSSARY = "glossary.md"
_ROW = re.compile(r"^\| ([\w-]+) \| (.+) \|$", re.MULTILINE)
_PIECE = re.compile(r"(<!--.*?-->|<[^>]*>)", re.DOTALL)
_CLOSED = ("a", "code", "pre", "h1", "h2", "h3", "h4", "script", "style", "svg")
"""The elements in which no word is linked."""


@cache
def words() -> dict[str, str]:
    """Return the words of the glossary with their meanings."""
    rows = dict(_ROW.findall((ROOT / "docs" / GLOSSARY).read_text(encoding="utf-8")))
    return {word: meaning for word, meaning in rows.items() if word != "word"}


@cache
def _any_word() -> re.Pattern[str]:
    """Return the pattern of a word of the glossary, also of several and at a sentence's start."""
    forms = {word: word for word in words()} | {w[0].upper() + w[1:]: w for w in words()}
    return re.compile(rf"(?<![\w-])({'|'.join(sorted(forms, key=len, reverse=True))})s?(?![\w-])")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the first use of each word of the glossary on a page; give its rows their names."""
    if page.file.src_uri == GLOSSARY:
        return re.sub(r"<tr>\n<td>([\w-]+)</td>", _named, html)
    left = set(words())
    inside: list[str] = []
    pieces = _PIECE.split(html)
    for place, piece in enumerate(pieces):
        if place % 2:
            _enter(piece, inside)
        elif left and not inside:
            pieces[place] = _any_word().sub(lambda match: _linked(match, left), piece)
    return "".join(pieces)


def _named(match: re.Match[str]) -> str:
    return f'<tr id="{match[1].lower()}">\n<td>{match[1]}</td>'


def _enter(tag: str, inside: list[str]) -> None:
    """Note that an element begins or ends in which no word is linked."""
    name = re.sub(r"^</?([\w-]*).*", r"\1", tag, flags=re.DOTALL).lower()
    if name not in _CLOSED or tag.endswith("/>"):
        return
    if not tag.startswith("</"):
        inside.append(name)
    elif name in inside:
        inside.remove(name)


def _linked(match: re.Match[str], left: set[str]) -> str:
    word = match[1] if match[1] in words() else match[1][0].lower() + match[1][1:]
    if word not in left:
        return match[0]
    left.discard(word)
    meaning = entities.escape(words()[word])
    return f'<a href="glossary.html#{word.lower()}" title="{meaning}">{match[0]}</a>'
