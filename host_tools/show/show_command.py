"""`bluebridge show`: what the devices of a guest hold now."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import guests, record
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.show import text
from bluebridge.host_tools.show.ports import DMA, ECN, NTB, PORTS
from bluebridge.host_tools.show.queues import CQ, EQ, FT, MR, OBJECTS, QP, RQ, RQT, SQ, SRQ, TIR
from bluebridge.host_tools.show.registers import CONFIG, REGS
from bluebridge.host_tools.show.text import Item, Kind

_KINDS = (
    *(QP, CQ, SRQ, EQ, ECN, MR, SQ, RQ, TIR, RQT, FT, OBJECTS),
    *(PORTS, REGS, CONFIG, NTB, DMA),
)
KINDS = {kind.name: kind for kind in _KINDS}
"""The kinds of objects by their words on the command line."""
OF_CONNECTX5 = (SQ, RQ, TIR, RQT, FT, OBJECTS)
"""Kinds of objects that a ConnectX-3 has not."""


Tell = Callable[[str], list[str]]
"""A function that has the server carry out a line, and returns the lines of its answer."""

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,18}")
"""A number of at most 64 bits: decimal, or 0x and hexadecimal digits."""


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


def main(options: argparse.Namespace) -> int:
    """Print the objects that the options name; return 0. Raises `LabError`."""
    kind, name, number = _kind(options), options.name, options.number
    guest = find(name)
    tell = teller(guest, _mend(kind, name, number))
    before = _before(options, tell, kind, last=_ended(guest))
    answer = ask(tell, name, kind, number, last=_ended(guest))
    document = {
        "name": name, "what": kind.name, "functions": answer.functions, "items": answer.items,
    }  # fmt: skip
    if options.save is not None:
        options.save.write_text(json.dumps(document, indent=1))
    if _ended(guest):
        why = guest.record.why
        print(f"bluebridge: guest {guest.name}: {why}; shown as it was then", file=sys.stderr)
    if before is not None:
        _print_since(options, kind, text.differences(kind, before, answer.items))
    elif options.json:
        print(json.dumps(document, indent=2))
    else:
        for line in _lines(answer, one=number is not None):
            print(line)
    return 0


def _kind(options: argparse.Namespace) -> Kind:
    kind, number = KINDS[options.what], options.number
    if number is not None and not kind.keys:
        raise UsageError(f"{kind.name} {number}: {kind.name} has no numbers", "leave it out")
    if number is not None and not _NUMBER.fullmatch(number):
        raise UsageError(f"{number} is no number", f"write {kind.number}, such as 73 or 0x49")
    return kind


def find(name: str) -> Guest:
    """Return the guest of a name, even if its kernel hangs. Raises `LabError`."""
    if "/" in name:
        raise UsageError(f"{name}: a port has no objects", f"show {name.partition('/')[0]} ports")
    guest = guests.find(name.partition(".")[0])
    trouble = guest.trouble()
    if trouble is not None and guest.record.state != record.ENDED:
        raise trouble
    if guest.pair.control is None:
        raise LabError(f"{guest.called} is not up yet", "wait for `bluebridge up`")
    return guest


def _mend(kind: Kind, name: str, number: str | None) -> str:
    if kind in OF_CONNECTX5 and number is None:
        return "`bluebridge up --card connectx5` starts guests that have some"
    if kind in (NTB, DMA):
        return "`bluebridge up --ntb` starts guests that have one"
    if number is not None:
        return f"`bluebridge show {name} {kind.name}` lists them"
    return "`bluebridge up --hca` starts guests that have an HCA"


def teller(guest: Guest, mend: str) -> Tell:
    """Return what asks the guest's device server; `mend` is the advice when that refuses."""
    if guest.pair.control is None or not guest.pair.control.exists():
        raise UsageError(f"{guest.called} has no devices", "`bluebridge up` without --bare")

    def tell(line: str) -> list[str]:
        try:
            return guest.tell(line)
        except UsageError as error:
            raise UsageError(error.what, mend) from None

    return tell


def _before(
    options: argparse.Namespace, tell: Tell, kind: Kind, *, last: bool
) -> list[dict[str, Any]] | None:
    """Return the items of the earlier moment, or None; wait if that is now. Raises `UsageError`."""
    moment = options.since
    if moment is None:
        return None
    if isinstance(moment, Path):
        items = text.load(moment, kind, options.name)
        if options.number is None:
            return items
        now = ask(tell, options.name, kind, options.number, last=last)
        wanted = {kind.key(item) for item in now.items}
        return [item for item in items if kind.key(item) in wanted]
    if last:
        raise UsageError(
            "the guest has ended: nothing changes any more", "leave out --since, or name a file"
        )
    items = ask(tell, options.name, kind, options.number).items
    time.sleep(moment)
    return items


def _ended(guest: Guest) -> bool:
    """Whether the guest's QEMU has ended: its devices were reset then."""
    return guest.record.state == record.ENDED


def _print_since(options: argparse.Namespace, kind: Kind, found: list[text.Difference]) -> None:
    if options.json:
        told = {"name": options.name, "what": kind.name, "differences": text.document(found)}
        print(json.dumps(told, indent=2))
        return
    for line in text.lines(kind, found):
        print(line)
    if not found:
        print(f"{options.name}: no difference")


def _lines(answer: Answer, *, one: bool) -> Iterator[str]:
    kind, items = answer.kind, answer.items
    for function in answer.functions:
        if function.get("failed"):
            name = function["name"]
            yield f"{name}: an internal error stopped it; `bluebridge show {name} regs` has why"
    if not items:
        for each in answer.functions:
            started = each.get("initialised", True) or each.get("failed")
            why = "" if started else ": no driver has started it"
            yield f"{each['name']} has no {kind.title}{why}"
    elif kind.name == "config":
        yield from text.names(items)
    elif kind.columns and (not one or kind.offsets):
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        yield from text.table(kind, items, columns)
    else:
        for position, item in enumerate(items):
            yield from [""] if position else []
            yield from text.page(kind, item)
