"""Makes texts of guests, users and damaged logs safe to print on a terminal."""

from __future__ import annotations


def printable(data: bytes | str) -> str:
    r"""Return UTF-8 bytes or text in one line; unprintable characters are escaped (`\x1b`)."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
