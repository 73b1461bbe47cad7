"""Asks a device server what a kind of objects holds, answer after answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.show.item import Item, Kind

Tell = Callable[[str], list[str]]
"""Has the server carry out a line of its control socket; the lines of its answer."""


@dataclass
class Answer:
    """All items of a kind, in order; `functions` says how those are that were asked."""

    kind: Kind
    functions: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


def ask(tell: Tell, name: str, kind: Kind, number: str | None) -> Answer:
    """The objects of `name`, or the one with a number. Raises `LabError`, `UsageError`."""
    answer = Answer(kind)
    asked = "" if number is None or kind.offsets or not kind.keys else f" {number}"
    line = f"show {name} {kind.name}{asked}"
    while line:
        line = _take(answer, tell(line), kind.name)
    if number is not None and kind.offsets:
        answer.items = _at(answer, int(number, 0), name)
    answer.items.sort(key=kind.key)
    return answer


def _take(answer: Answer, lines: list[str], what: str) -> str:
    """Take the rows of one answer; the next question, empty when that was all."""
    more = ""
    for row in map(json.loads, lines):
        if "more" in row:
            more = f"show {what} more {row['more']}"
        elif "functions" in row:
            answer.functions = row["functions"]
        else:
            answer.items += answer.kind.items(row)
    return more


def _at(answer: Answer, offset: int, name: str) -> list[Item]:
    """The register that an offset falls into: the last one that begins there or before."""
    found = []
    for function in {item["function"] for item in answer.items}:
        items = [each for each in answer.items if each["function"] == function]
        starts = [each["offset"] for each in items if each["offset"] <= offset]
        found += [each for each in items if starts and each["offset"] == max(starts)]
    if not found:
        raise UsageError(
            f"{name} has no register at {offset:#x}", f"`bluebridge show {name} {answer.kind.name}`"
        )
    return found
