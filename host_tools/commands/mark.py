"""`bluebridge mark`: puts a note into the bus log, to find a moment again."""

from __future__ import annotations

import argparse
import re

from bluebridge.device.buslog.marks import MAX_TEXT
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests, registry
from bluebridge.printable import printable

_GUEST = re.compile("[a-z][0-9]*")
"""Matches what can only be meant for a guest, in front of the words of a text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.usage = "bluebridge mark [GUEST] TEXT"
    parser.description = (
        "Put a note into the bus log of a guest's pair; without GUEST of the newest pair, and for "
        "all functions of it. Quote a text that begins with a letter by itself. "
        "`bluebridge log DIR --from-mark TEXT` begins there."
    )
    parser.add_argument("given", nargs="+", metavar="WORD", help="the guest, if any, and the text")


def main(options: argparse.Namespace) -> int:
    """Put the mark into the log; returns 0 when it is there. Raises `LabError`."""
    name, text = split(options.given)
    names = _names()
    if not name and not names:
        raise UsageError("nothing runs", "start a pair with `bluebridge up`")
    guest = guests.find_up(name or names[-1])  # a guest of the newest pair
    guest.tell(f"mark @{name} {text}" if name else f"mark {text}")
    print(f"marked: {printable(text)}")
    return 0


def _names() -> list[str]:
    return [guest.name for _, pair in registry.pairs() for guest in pair.guests]


def split(words: list[str]) -> tuple[str, str]:
    """Split words into a guest's name, empty for all guests, and the text of the mark.

    Raises `UsageError` when there is no text.
    """
    name, names = "", _names()
    if len(words) > 1 and (words[0] in names or _GUEST.fullmatch(words[0])):
        name, words = words[0], words[1:]
        if name not in names:
            guests.find(name)  # raises: it says which there are
    text = " ".join(" ".join(words).split())
    if not text:
        raise UsageError("a mark needs a text", "write `bluebridge mark TEXT`")
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"the text has {len(text)} letters", f"a mark has at most {MAX_TEXT}: shorten it"
        )
    return name, text
