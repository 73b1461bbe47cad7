"""Texts of guests, users and damaged logs, made harmless for a terminal."""

from __future__ import annotations


def printable(data: bytes | str) -> str:
    r"""The text of UTF-8 bytes in one line, in which what does not print is escaped (`\x1b`)."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
