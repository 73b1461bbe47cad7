"""What of an event two runs have in common: its line without what differs from run to run."""

from __future__ import annotations

import re
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.event_lines import KINDS, Describe

Stream = tuple[str, str]
"""A function by its name in the log, and the kind of its events; of DMA and messages, what for."""

LEAST_LARGE: Final = 0x10000
"""A hexadecimal number from here on is taken for an address, a key or another chosen number."""
CHOSEN: Final = frozenset(("psn", "tid", "rkey", "lkey", "key", "path", "session", "mkey"))
"""Fields whose numbers are chosen anew in each run, however small."""
_NUMBER: Final = re.compile(r"(?:([A-Za-z_]+)=)?0x([0-9a-f]+)")
_TIME: Final = re.compile(r"\b\d+(?:\.\d+)? (?:us|ms|s)\b")
_DMA: Final = KINDS["dma"] | KINDS["wire"] | KINDS["blueflame"]
_GROUPS: Final = {kind: name for name, kinds in KINDS.items() for kind in kinds if kind not in _DMA}


def stream_of(event: Event) -> Stream:
    """Whose events are compared in order with this one: others may come between in any order."""
    kind = event.kind
    if kind in _DMA:
        name = event.kind.name.lower().replace("_", " ")
        return event.device, f"{name} {event.what.name.lower().replace('_', ' ')}"
    return event.device, _GROUPS[kind]


_SCATTERED: Final = frozenset((What.OTHER, What.OWNERSHIP))
"""Transfers of which each is as long as the memory happens to be in one piece; and no transfers."""


class Comparable:
    """Lines of one stream; chosen numbers in them are replaced by the order of appearance.

    Each chosen number of the stream stays in memory: one forgotten would, when it comes again, be
    numbered as if it were new, by when it was forgotten and not by what the driver did.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}

    def line(self, event: Event, words: Describe) -> str:
        """An event without time, place in memory and data."""
        text = _TIME.sub("", words(event)) if event.kind is Kind.COMMAND else words(event)
        text = f"{event.kind.name} {_NUMBER.sub(self._number, text)}"
        return f"{text} [{event.length}]" if event.what not in _SCATTERED else text

    def _number(self, found: re.Match[str]) -> str:
        name, digits = found[1] or "", found[2]
        if int(digits, 16) < LEAST_LARGE and name not in CHOSEN:
            return found[0]
        number = self._known.setdefault((name, digits), len(self._known) + 1)
        return f"{name}=#{number}" if name else f"#{number}"
