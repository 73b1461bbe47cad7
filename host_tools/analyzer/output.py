"""Output of commands: files that appear when complete, lines that fit a terminal."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bluebridge.device.buslog.reader import LogError

STANDARD_OUTPUT = Path("-")
_OTHER_FILE = "name a file that can be written"

_BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"
_WORDS = (
    (r"\S*(?:ERROR|NAK|ERR\b|FAULT|syndrome)\S*", _RED),
    (r"\b(?:reset|fault)\b", _YELLOW),
    (r"host->dev", _CYAN),
    (r"dev->host", _GREEN),
)
_PATTERN = re.compile("|".join(f"({pattern})" for pattern, _ in _WORDS))
_COLOURS = dict(enumerate((colour for _, colour in _WORDS), 1))  # by the group of the pattern


@contextmanager
def opened(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Open `path` for writing; `-` is standard output.

    The file appears when the block ends, and not at all after an error. Raises `LogError` when it
    exists and `replace` is false, and when it cannot be written.
    """
    try:
        with _opened(path, replace=replace) as file:
            yield file
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        mend = "free some space or name a file on another disk" if full else _OTHER_FILE
        raise LogError(f"{path}: {error.strerror}; {mend}") from error


@contextmanager
def _opened(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise LogError(f"{path} is a folder: name a file in it")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as device:  # such as a pipe to tshark
            yield device
        return
    if path.exists() and not replace:
        raise LogError(f"{path} exists: name another file or add --force")
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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
    columns, cut = width(), 0
    # https://no-color.org, and the terminal's abilities
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for number, line in enumerate(lines):
        if columns is not None and len(line) > columns:
            cut += 1
            line = f"{line[: columns - 1]}…"
        yield _painted(line, header=not number) if colour else line
    if cut:
        text = f"{cut} lines were cut at {columns} columns; `| less -S` shows them whole"
        print(text, file=sys.stderr)


def _painted(line: str, *, header: bool) -> str:
    if header:
        return f"\x1b[{_BOLD}m{line}\x1b[0m" if not line.startswith("{") else line
    return _PATTERN.sub(
        lambda found: f"\x1b[{_COLOURS[found.lastindex or 1]}m{found[0]}\x1b[0m", line
    )
