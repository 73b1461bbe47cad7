"""Asks a device server for all objects of a kind, in as many answers as it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.show.item import Item, Kind

Tell = Callable[[str], list[str]]
"""A function that has the server carry out a line, and returns the lines of its answer."""


@dataclass
class Answer:
    """All items of a kind, in order; `functions` has the state of each function that was asked."""

    kind: Kind
    functions: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


def ask(tell: Tell, name: str, kind: Kind, number: str | None, *, last: bool = False) -> Answer:
    """Return the objects of `name`, or the one with a number. Raises `LabError`, `UsageError`.

    `last`: as they were when QEMU ended.
    """
    answer = Answer(kind)
    filtered = last or kind.offsets
    asked = " last" if last else "" if number is None or filtered else f" {number}"
    where = _take(answer, tell(f"show {name} {kind.name}{asked}"))
    while where is not None:
        where = _take(answer, tell(f"show {name} {kind.name} more {where}"))
    if number is not None and filtered:
        find = _at if kind.offsets else _numbered
        answer.items = find(answer, int(number, 0), name)
    answer.items.sort(key=kind.key)
    return answer


def _take(answer: Answer, lines: list[str]) -> int | None:
    """Take the rows of one answer; return where the next one begins, None when that was all."""
    more: int | None = None
    for row in map(json.loads, lines):
        if "more" in row:
            more = row["more"]
        elif "functions" in row:
            answer.functions = row["functions"]
        else:
            answer.items += answer.kind.items(row)
    return more


def _at(answer: Answer, offset: int, name: str) -> list[Item]:
    """Return the register that contains an offset: the last one that begins there or before."""
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


def _numbered(answer: Answer, number: int, name: str) -> list[Item]:
    """Return the items that software calls `number`. Raises `UsageError` when there is none."""
    kind = answer.kind
    found = [item for item in answer.items if item[kind.keys[0]] == number]
    if not found:
        raise UsageError(
            f"{name} had no {kind.name} {number}", f"`bluebridge show {name} {kind.name}`"
        )
    return found
