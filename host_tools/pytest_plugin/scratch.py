"""Scratch folders, one per test or shared pair: kept or removed by the verdict; a page in each."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from bluebridge.device.buslog.marks import find_mark
from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.output import opened

Keep = Literal["always", "failed", "never"]

_LONGEST_NAME = 80

MOST_EVENTS: Final = 20_000
"""The most events before the end of the log that are looked at, if the test began earlier."""
MOST_ACTIVITIES: Final = 5_000
BEGINS, ENDS = "begins", "ends"


@dataclass(eq=False)
class Scratch:
    """The scratch folder of one pair, or of one test that has no pair."""

    path: Path
    failed: bool = False
    """Whether a test that used the folder failed."""
    tests: list[str] = field(default_factory=list)
    """The node ids of the tests that used the folder, in their order."""
    judged: set[str] = field(default_factory=set)
    """The node ids of the tests that used the folder and whose outcome is known."""
    over: bool = False
    """Whether no test will use the folder any more."""


class ScratchBase:
    """Makes the scratch folders in `root`, and removes those that are not to be kept."""

    def __init__(self, root: Path, keep: Keep) -> None:
        """Prepare for folders in `root`; `keep` says which of them stay.

        `root` is made with the first folder, and removed when it is empty at the end.
        """
        self.root = root
        self.keep = keep
        self.kept: list[Path] = []
        """The folders that stay, of tests that are over."""
        self._folders: list[Scratch] = []

    def make(self, node: str) -> Scratch:
        """Make a new folder named after a node id."""
        name = folder_name(node)
        self.root.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = self.root / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        made = Scratch(path)
        self._folders.append(made)
        return made

    def used_by(self, node: str) -> list[Scratch]:
        """Return the folders that a test used."""
        return [each for each in self._folders if node in each.tests]

    def judge(self, node: str, failed: bool) -> None:
        """Note the outcome of a test; `failed` says whether any part of it failed."""
        for each in self.used_by(node):
            each.judged.add(node)
            each.failed |= failed
        self._settle()

    def close(self) -> list[Path]:
        """Remove the folders that need not be kept; return all that were kept in this session.

        A test that was never judged was interrupted, and its folder may show why it took so long.
        """
        for each in self._folders:
            each.over = True
            each.failed |= not each.judged.issuperset(each.tests)
        self._settle()
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()
        return self.kept

    def _settle(self) -> None:
        for each in [each for each in self._folders if each.over]:
            self._folders.remove(each)
            if self.keep == "always" or (self.keep == "failed" and each.failed):
                self.kept.append(each.path)
            else:
                shutil.rmtree(each.path, ignore_errors=True)


def folder_name(node: str) -> str:
    """Return a node id as a folder's name: its file's name and the rest, without odd characters."""
    file, _, rest = node.partition("::")
    whole = f"{Path(file).stem}-{rest}"
    return re.sub(r"[^A-Za-z0-9_.=]+", "-", whole).strip("-.")[:_LONGEST_NAME] or "test"


def mark_of(node: str, moment: str) -> str:
    """Return the text of the mark in the bus log at which a test `BEGINS` or `ENDS`."""
    return " ".join(f"{node} {moment}".split())


def page_path(folder: Path, node: str) -> Path:
    """Return the path of a test's page in the scratch folder, whether or not there is a page."""
    return folder / f"{folder_name(node)}.html"


def first_event(reader: LogReader, node: str) -> int:
    """Return the event at which a test began, or a later one that is not too far from the end."""
    first = max(0, about_last(reader.folder) - MOST_EVENTS)
    with contextlib.suppress(LogError):  # the log may not say where the test began
        first = max(first, find_mark(reader, mark_of(node, BEGINS)).number)
    return first


def write_page(folder: Path, node: str) -> Path | None:
    """Write the page of a test into its scratch folder; return its path, None without a bus log.

    Failures are ignored: a failed test has its report whether or not its page could be made.
    """
    from bluebridge.host_tools.web.book import Book
    from bluebridge.host_tools.web.lab import Lab
    from bluebridge.host_tools.web.save import page

    path = page_path(folder, node)
    with contextlib.suppress(LogError, OSError):
        reader = LogReader(folder)
        first = first_event(reader, node)
        with opened(path, replace=True) as file:
            lab, book = Lab(reader, node), Book(reader.folder)
            for piece in page(lab, book, first, MOST_ACTIVITIES, at_end=True):
                file.write(piece)
        return path
    return None
