"""`bluebridge mark`: a note in the bus log, to find a moment again."""

from __future__ import annotations

import argparse

from bluebridge.device.buslog.marks import MAX_TEXT
from bluebridge.device.buslog.printable import printable
from bluebridge.host_tools.commands import device_server
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.usage = "bluebridge mark [GUEST] TEXT"
    parser.description = (
        "Put a note into the bus log of a guest's pair (of the newest pair without GUEST); "
        "`bluebridge log DIR --from-mark TEXT` begins there."
    )
    parser.add_argument("given", nargs="+", metavar="WORD", help="the guest, if any, and the text")


def main(options: argparse.Namespace) -> int:
    """Put the mark into the log; returns 0 when it is there. Raises `LabError`."""
    name, text = _split(options.given)
    guest = device_server.find(name)
    device_server.tell(guest, f"mark {text}")
    print(f"marked: {printable(text)}")
    return 0


def _split(words: list[str]) -> tuple[str, str]:
    """The guest and the text. Raises `UsageError`."""
    names = [guest.name for _, pair in registry.pairs() for guest in pair.guests]
    if words[0] in names and len(words) > 1:
        name, words = words[0], words[1:]
    elif not names:
        raise UsageError("nothing runs", "start a pair with `bluebridge up`")
    else:
        name = names[-1]
    text = " ".join(" ".join(words).split())
    if not text:
        raise UsageError("a mark needs a text", "write `bluebridge mark TEXT`")
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"the text has {len(text)} letters", f"a mark has at most {MAX_TEXT}: shorten it"
        )
    return name, text
