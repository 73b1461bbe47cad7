"""The fields of an event that a condition can compare, with all spellings of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import HEAD
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.event_lines import KINDS
from bluebridge.host_tools.analyzer.transaction import OK

Value = int | str
Describe = Callable[[Event], str]

_PAIR: Final = re.compile(r"([A-Za-z_][\w.]*)=('[^']*'|[^\s,;]+)")
_STATUS: Final = re.compile(r" ([A-Z][A-Z_]+) \d+ us(?::|$)")
"""Matches the status of a firmware command in its line."""
_SYNDROME_AT: Final = 2
"""Index of the syndrome in the values of `HEAD`."""


def _kind(event: Event) -> list[Value]:
    groups = [name for name, kinds in KINDS.items() if event.kind in kinds]
    return [event.kind.name.lower(), *groups]


def _what(event: Event) -> list[Value]:
    return [event.what.name.lower()]


def _guest(event: Event) -> list[Value]:
    return [re.split(r"[./]", event.device)[0]]


def _bar(event: Event) -> list[Value]:
    return [event.bar] if event.kind in KINDS["mmio"] else []


def _vector(event: Event) -> list[Value]:
    return [event.address] if event.kind is Kind.IRQ else []


def _syndrome(event: Event) -> list[Value]:
    """Return the syndrome of a response (0 for an acknowledgement) or of a completion in error."""
    if event.kind is Kind.WIRE and event.what is What.RESPONSE and len(event.data) >= HEAD.size:
        code = HEAD.unpack_from(event.data)[_SYNDROME_AT]
        rnr = code & 0x60 == Syndrome.RNR_NAK
        return _named(Syndrome, code, Syndrome.RNR_NAK if rnr else code)
    return _failed_completion(event)


def _status(event: Event) -> list[Value]:
    """Return the status of a firmware command or of a work request."""
    if event.kind is Kind.COMMAND:
        found = _STATUS.search(event.text)
        return [found[1]] if found else []
    if event.what is not What.CQE or event.kind is not Kind.DMA_WRITE:
        return []
    return _failed_completion(event) or [OK, 0]


def _failed_completion(event: Event) -> list[Value]:
    """Return the status of a completion in error; empty for any other event."""
    if event.what is not What.CQE or event.kind is not Kind.DMA_WRITE:
        return []
    adapter = adapter_of(event.device)
    code = adapter.failure(event.data)
    return [] if code is None else _named(adapter.statuses, code, code)


def _named(names: type[IntEnum], code: int, of_name: int) -> list[Value]:
    return [code, *(each.name for each in names if each == of_name)]


DIRECT: Final[dict[str, Callable[[Event], list[Value]]]] = {
    "kind": _kind,
    "what": _what,
    "device": lambda event: [event.device],
    "guest": _guest,
    "bar": _bar,
    "vector": _vector,
    "address": lambda event: [event.address],
    "length": lambda event: [event.length],
    "obj": lambda event: [event.obj],
    "syndrome": _syndrome,
}
"""Functions for the fields that are known without the event's words."""


def values(event: Event, name: str, words: Describe) -> Iterator[list[Value]]:
    """Yield the values of a field of an event, which may have the field several times.

    Each value is given in all its spellings, numbers as numbers.
    """
    if name in DIRECT:
        found = DIRECT[name](event)
        if found:
            yield found
        return
    if name == "status" and (found := _status(event)):
        yield found
        return
    for field, text in _PAIR.findall(words(event)):
        if field.rpartition(".")[2] == name or field == name:
            yield [read(text)]


def read(text: str) -> Value:
    """Convert the text of a value to a number (`12`, `0x0c`) or leave it a word."""
    try:
        return int(text, 0)
    except ValueError:
        return text.strip("'\"")
