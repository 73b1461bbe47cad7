"""Fits lines of a view to a terminal: cut to its width and coloured; pipes get them unchanged."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

_BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"
_WORDS = (
    (r"\S*(?:ERROR|NAK|ERR\b|FAULT|syndrome)\S*", _RED),
    (r"\b(?:reset|fault)\b", _YELLOW),
    (r"host->dev", _CYAN),
    (r"dev->host", _GREEN),
)
_PATTERN = re.compile("|".join(f"({pattern})" for pattern, _ in _WORDS))


def width() -> int | None:
    """Return the columns of the terminal that is standard output; None if it is none."""
    try:
        if not sys.stdout.isatty():
            return None
        columns = int(
            os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns
        )
    except (OSError, ValueError):
        return None
    return columns or None


def fitted(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines cut for the terminal; a last line on standard error tells if any were cut."""
    columns, colour, cut = width(), _coloured(), 0
    for number, line in enumerate(lines):
        if columns is not None and len(line) > columns:
            cut += 1
            line = f"{line[: columns - 1]}…"
        yield _painted(line, header=not number) if colour else line
    if cut:
        text = f"{cut} lines were cut at {columns} columns; `| less -S` shows them whole"
        print(text, file=sys.stderr)


def _coloured() -> bool:
    """Return whether to use colours, by https://no-color.org and the terminal's abilities."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _painted(line: str, *, header: bool) -> str:
    if header:
        return f"\x1b[{_BOLD}m{line}\x1b[0m" if not line.startswith("{") else line
    return _PATTERN.sub(_paint, line)


def _paint(match: re.Match[str]) -> str:
    colour = _WORDS[(match.lastindex or 1) - 1][1]
    return f"\x1b[{colour}m{match[0]}\x1b[0m"
