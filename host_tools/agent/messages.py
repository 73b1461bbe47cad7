"""What an agent's messages must hold: a guest may send anything, so each field is checked once.

A table has a row for each field, with the test that its value must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]
Table = Mapping[str, Test]

_LARGEST = 1 << 62

ANY: Table = {}
"""A result of which the host reads nothing."""


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST  # not a number is below nothing


def _is_truth(value: Any) -> bool:
    return type(value) is bool


def _is_whole_or_none(value: Any) -> bool:
    return value is None or _is_whole(value)


def _are_wholes(value: Any) -> bool:
    return type(value) is list and all(map(_is_whole, value))


def _are_functions(value: Any) -> bool:
    return type(value) is list and all(type(each) is dict and _fits(each) for each in value)


def _fits(function: dict[str, Any]) -> bool:
    return all(_is_text(function.get(name)) for name in ("address", "id", "driver"))


HELLO: Table = {"protocol": _is_whole, "instance": _is_text, "channels": _are_wholes}
FAILURE: Table = {"code": _is_text, "message": _is_text}
SIZE: Table = {"size": _is_whole_or_none}
RUN: Table = {
    "status": _is_whole_or_none,
    "signal": _is_whole_or_none,
    "timed_out": _is_truth,
    "seconds": _is_number,
}
PUT: Table = {"path": _is_text}
GET: Table = {"size": _is_whole, "checksum": _is_whole, "mode": _is_whole}
FUNCTIONS: Table = {"functions": _are_functions}
PING: Table = {
    "version": _is_text,
    "protocol": _is_whole,
    "python": _is_text,
    "pid": _is_whole,
    "hostname": _is_text,
    "uptime": _is_number,
    "clock": _is_number,
    "operations": _is_whole,
}


def checked(message: dict[str, Any], table: Table) -> dict[str, Any]:
    """Return the fields of `message` that `table` names, all of it for `ANY`.

    Raises `ValueError` for a field that is missing or does not pass its test.
    """
    for name, fits in table.items():
        if name not in message or not fits(message[name]):
            raise ValueError(f"`{name}` is missing or no such value")
    if table is RUN and (message["status"] is None) == (message["signal"] is None):
        raise ValueError("a command ends with a status or by a signal")
    return {name: message[name] for name in table} if table else message
