"""Hooks of `make docs`: README as front page, pages made from tables, links to source files."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

from bluebridge.device.layout.reference import reference
from bluebridge.device.mlx4.field_words.page import page as field_words

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_API = """\
# API reference

Made from the docstrings: <a href="api/index.html">guest.verbs, the pytest plugin, the reader of
the bus log and its model</a>.
"""
_SECTIONS = {
    "Start": (
        "index.md", "tour.md", "how-it-works.md", "glossary.md", "lab.md", "habits.md",
        "show.md", "web.md", "testing.md", "ci.md",
        "guest-image.md", "api-reference.md",
    ),
    "The bus": (
        "analyzer.md", "capture.md", "tlp-capture.md", "mmiotrace.md", "registers.md", "fields.md",
    ),
    "RDMA": (
        "verbs.md", "krping.md", "infiniband.md", "ethernet.md", "blueflame.md", "sweep.md",
        "hello-adapter.md", "dpdk.md", "ipxe.md", "faults.md",
    ),
    "Bridges": ("ntb.md", "ntrdma.md", "ntb-conformance.md"),
    "Storage": ("rtrs.md", "rtrs-lab.md", "rtrs-files.md", "hostile-peer.md"),
    "Inside": (
        "architecture.md", "iteration.md", "agent.md", "kmod.md", "clauses.md", "conformance.md",
        "benchmarks.md", "soak.md", "fuzzing.md", "security.md",
    ),
}  # fmt: skip
"""The site's navigation; pages that are named nowhere stand under More."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from tables, and README and SECURITY, which stand beside the folder."""
    made = {"api-reference.md": _API, "registers.md": reference(), "fields.md": field_words()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for name, target in (("README.md", "index.md"), ("SECURITY.md", "security.md")):
        text = (ROOT / name).read_text(encoding="utf-8")
        text = (
            text.replace("(docs/", "(")
            .replace('"docs/', '"')
            .replace("(SECURITY.md", "(security.md")
        )
        files.append(File.generated(config, target, content=text))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """The pages by section."""
    pages = {page.file.src_uri: page for page in nav.pages}
    named = {name for names in _SECTIONS.values() for name in names}
    sections = {**_SECTIONS, "More": tuple(sorted(pages.keys() - named))}
    nav.items = []
    for title, names in sections.items():
        section = Section(title, [pages[name] for name in names if name in pages])
        for page in section.children:
            page.parent = section
        if section.children:
            nav.items.append(section)
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A link to a file of the source tree is its path; the site has pages only."""

    def mended(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or files.get_file_from_path(_inside(page, target)) is not None:
            return match[0]
        if target == "../README.md":
            return f"[{text}](index.md{anchor})"
        if target == "../SECURITY.md":
            return f"[{text}](security.md{anchor})"
        path = posixpath.normpath(posixpath.join("docs", target))
        if not (ROOT / path).exists():
            return match[0]  # mkdocs tells of it
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(mended, markdown)


def _inside(page: Page, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
