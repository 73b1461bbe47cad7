"""Text of guests, peers and logs as a terminal, a report or a page may have it."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""A control sequence of a terminal: colours, movements of the cursor."""


def printable(data: bytes | str) -> str:
    r"""Return UTF-8 bytes or text in one line; unprintable characters are escaped (`\x1b`)."""
    return _escaped(_text(data), "")


def printable_lines(data: bytes | str) -> str:
    r"""Return UTF-8 bytes or text with its lines and tabs.

    Carriage returns and control sequences are left out; other unprintable characters are escaped.
    """
    return _escaped(_SEQUENCE.sub("", _text(data)).replace("\r", ""), "\n\t")


def _text(data: bytes | str) -> str:
    return data if isinstance(data, str) else data.decode(errors="replace")


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )
