"""The page of a failed test: its pair's traffic on the bus, in one file beside its logs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from bluebridge.device.buslog.marks import find_mark
from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.output import opened
from bluebridge.host_tools.pytest_plugin.scratch import folder_name

MOST_EVENTS: Final = 20_000
"""The most events before the end of the log at which a page begins, if its test began earlier."""
MOST_ACTIVITIES: Final = 5_000
BEGINS, ENDS = "begins", "ends"


def mark_of(node: str, moment: str) -> str:
    """Return the text of the mark in the bus log at which a test `BEGINS` or `ENDS`."""
    return " ".join(f"{node} {moment}".split())


def page_path(folder: Path, node: str) -> Path:
    """Return the path of a test's page in the scratch folder, whether or not there is a page."""
    return folder / f"{folder_name(node)}.html"


def write_page(folder: Path, node: str) -> Path | None:
    """Write the page of a test into its scratch folder; return its path, None without a bus log.

    Failures are ignored: a failed test has its report whether or not its page could be made.
    """
    path = page_path(folder, node)
    with contextlib.suppress(LogError, OSError):
        reader = LogReader(folder)
        _write(reader, node, path)
        return path
    return None


def _write(reader: LogReader, node: str, path: Path) -> None:
    from bluebridge.host_tools.web.book import Book
    from bluebridge.host_tools.web.lab import Lab
    from bluebridge.host_tools.web.save import page

    first = max(_first_event(reader, node), about_last(reader.folder) - MOST_EVENTS)
    with opened(path, replace=True) as file:
        lab, book = Lab(reader, node), Book(reader.folder)
        for piece in page(lab, book, first, MOST_ACTIVITIES, at_end=True):
            file.write(piece)


def _first_event(reader: LogReader, node: str) -> int:
    """The event at which the test began; 0 when the log does not say."""
    with contextlib.suppress(LogError):
        return find_mark(reader, mark_of(node, BEGINS)).number
    return 0
