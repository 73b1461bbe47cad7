"""Lines of the control socket about what functions hold now.

    show NAME WHAT              all of a kind: qp, cq, srq, eq, ecn, mr, ports, ntb, dma, regs,
                                config
    show NAME WHAT NUMBER       one of them, decimal or 0x...
    show NAME WHAT last         all as it was when the function's client was lost (QEMU ended)
    show NAME WHAT more WHERE   go on where an answer ended

NAME is a function as the log calls it (`a`, `a.1`, `a.ntb4`, `a.dma`), or a guest, for all of its
functions. The answer is JSON, a line for each object, its bytes as hexadecimal digits. The first
line names the functions that were asked, with the number of their objects and whether they work;
the last one is `{"more": WHERE}` if the answer goes on: a line of the socket takes `PAGE_SECONDS`
and has `PAGE_BYTES` at most, whatever a guest has made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bluebridge.device.server.adapters import Adapter
from bluebridge.device.show import Row, Table, Tables

PAGE_SECONDS = 0.002
PAGE_BYTES = 48 << 10
"""Bytes of one answer at most: the client's half of a socket holds so many unread."""
LISTINGS = 8
"""Unfinished answers of all clients that are kept; one more drops the oldest."""
SHORT = ("show NAME WHAT [NUMBER|last]", "show NAME WHAT more WHERE")


@dataclass(slots=True)
class Listing:
    """An answer under way: functions, their tables and the numbers of the objects when asked.

    `done` is the number of objects that were already given.
    """

    what: str
    tables: list[tuple[str, Table, Sequence[int]]]
    done: int = 0

    def rest(self) -> Iterator[tuple[str, Table, int]]:
        """Yield function, table and number of the objects that were not given yet."""
        skip = self.done
        for name, table, numbers in self.tables:
            for position in range(min(skip, len(numbers)), len(numbers)):
                yield name, table, numbers[position]
            skip -= min(skip, len(numbers))


class ShowCommands:
    """Executes the control lines of `show` on the functions of a server, given by name.

    `hcas` tell whether adapters work. `last` is what functions held when their clients were lost.
    """

    def __init__(
        self,
        functions: Mapping[str, Tables],
        hcas: Mapping[str, Adapter],
        last: Mapping[str, Tables] | None = None,
    ) -> None:
        self._functions = functions
        self._remains = {} if last is None else last
        self._hcas = hcas
        self._listings: dict[int, Listing] = {}
        self._asked = 0

    def show(self, words: Sequence[str]) -> list[str]:
        """Return the lines that answer the words behind `show`; raises `ValueError`."""
        if len(words) == 4 and words[2] == "more":
            return self._more(words[1], words[3])
        if len(words) not in (2, 3):
            raise ValueError(f"write: {', or: '.join(SHORT)}")
        name, what, *number = words
        names = self._named(name, what)
        if number == ["last"]:
            kept = self._remains
            return self._all(what, {each: kept[each][what] for each in names if each in kept})
        if number:
            return self._one(names, what, number[0])
        return self._all(what, {each: self._functions[each][what] for each in names})

    def _all(self, what: str, tables: Mapping[str, Table]) -> list[str]:
        """Return the state of the functions and the first page of their objects."""
        listing = Listing(what, [(name, table, table.numbers()) for name, table in tables.items()])
        head = [self._head(name, len(numbers)) for name, _, numbers in listing.tables]
        return [_line({"functions": head}), *self._page(listing)]

    def _named(self, name: str, what: str) -> list[str]:
        """Return the functions called `name`, or in this guest, that have a table `what`."""
        named = [each for each in self._functions if each == name or each.startswith(f"{name}.")]
        if not named:
            raise ValueError(f"there is no {name!r}, but {', '.join(self._functions)}")
        found = [each for each in named if what in self._functions[each]]
        if not found:
            kinds = dict.fromkeys(kind for each in named for kind in self._functions[each])
            raise ValueError(f"{name} has no {what}, but {', '.join(kinds)}")
        return found

    def _head(self, name: str, count: int) -> Row:
        hca = self._hcas.get(name)
        head: Row = {"name": name, "count": count}
        if hca is not None:
            head |= {"failed": hca.failed, "initialised": hca.initialised}
        return head

    def _one(self, names: Sequence[str], what: str, text: str) -> list[str]:
        number = _number(text)
        rows = [(name, self._find(name, what, number)) for name in names]
        lines = [_line({"function": name, **row}) for name, row in rows if row is not None]
        if not lines:
            raise ValueError(
                f"{', '.join(names)} has no {what} {text}: `bluebridge show NAME {what}` lists them"
            )
        head = [self._head(name, int(row is not None)) for name, row in rows]
        return [_line({"functions": head}), *lines]

    def _find(self, name: str, what: str, number: int) -> Row | None:
        table = self._functions[name][what]
        found = table.find(number)
        return None if found is None else table.row(found)

    # -- answers that go on -------------------------------------------------------------------

    def _more(self, what: str, where: str) -> list[str]:
        listing = self._listings.pop(_number(where), None)
        if listing is None or listing.what != what:
            raise ValueError(f"{where} is no answer of {what} that goes on: ask for all again")
        return self._page(listing)

    def _page(self, listing: Listing) -> list[str]:
        """Return the rows that time and room allow, at least one."""
        until, size = monotonic() + PAGE_SECONDS, 0
        lines: list[str] = []
        for name, table, number in listing.rest():
            if lines and (size >= PAGE_BYTES or monotonic() >= until):
                lines.append(_line({"more": self._keep(listing)}))
                break
            listing.done += 1
            row = table.row(number)
            if row is not None:
                lines.append(_line({"function": name, **row}))
                size += len(lines[-1])
        return lines

    def _keep(self, listing: Listing) -> int:
        self._asked += 1
        self._listings[self._asked] = listing
        if len(self._listings) > LISTINGS:
            del self._listings[min(self._listings)]
        return self._asked


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"))


def _number(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no number: write one, decimal or 0x...") from None
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{text[:40]} is out of range: write a number of at most 64 bits")
    return number
