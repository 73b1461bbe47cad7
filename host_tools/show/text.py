"""Items as text for people: a table, or a page of lines for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bluebridge.host_tools.show.item import Item, Kind

GAP = "  "


def cell(value: Any, *, hexadecimal: bool = False) -> str:
    """Return a value as text in as few letters as possible."""
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and hexadecimal:
        return f"{value:#x}"
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{n}={cell(each, hexadecimal=hexadecimal)}" for n, each in value.items())
    return str(value)


def table(kind: Kind, items: Sequence[Item], width: int | None) -> Iterator[str]:
    """Yield a line of names and a row for each item, with as many columns as fit `width` letters.

    None is no bound. Columns that no item has anything in are left out. Functions are named where
    there are several.
    """
    several = len({item["function"] for item in items}) > 1
    names = [*(["function"] if several else []), *kind.columns]
    columns = [_column(kind, name, items) for name in names]
    shown = [column for column in columns if set(column[1:]) != {"-"}]
    fitting = shown if width is None else shown[: _fitting(shown, width)]
    widths = [max(map(len, column)) for column in fitting]
    for row in zip(*fitting, strict=True):
        texts = (text.ljust(size) for text, size in zip(row, widths, strict=True))
        yield GAP.join(texts).rstrip()
    if left := [column[0] for column in shown[len(fitting) :]]:
        yield f"no room for: {', '.join(left)} (see one {kind.name}, --json, or a wider terminal)"


def _column(kind: Kind, name: str, items: Sequence[Item]) -> list[str]:
    hexadecimal = name in kind.hexadecimal
    return [name, *(cell(item.get(name), hexadecimal=hexadecimal) for item in items)]


def _fitting(columns: Sequence[Sequence[str]], width: int) -> int:
    """Return how many columns fit, at least one."""
    taken = -len(GAP)
    for count, column in enumerate(columns):
        taken += len(GAP) + max(map(len, column))
        if taken > width:
            return max(count, 1)
    return len(columns)


def page(kind: Kind, item: Item) -> Iterator[str]:
    """Yield a title and a line for each field, with its name and value."""
    yield title(kind, item)
    fields = [(name, value) for name, value in item.items() if name not in ("function", *kind.keys)]
    lines = [line for name, value in fields for line in _lines(name, value, kind)]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        yield f"{GAP}{name:{width}}{GAP}{value}"


def _lines(name: str, value: Any, kind: Kind) -> list[tuple[str, str]]:
    """Return the lines of a field, several for one that holds several values."""
    whole = {name: value}
    parts = {f"{name} {p}": each for p, each in value.items()} if isinstance(value, dict) else whole
    hexadecimal = name in kind.hexadecimal
    return [(each, cell(part, hexadecimal=hexadecimal)) for each, part in parts.items()]


def title(kind: Kind, item: Item) -> str:
    """Return the name of an item such as `a qp 0x49`, or `a eq 12`."""
    return " ".join([item["function"], kind.name, *(_number(kind, item, k) for k in kind.keys)])


def _number(kind: Kind, item: Item, key: str) -> str:
    return cell(item[key], hexadecimal=key in kind.hexadecimal)


def names(items: Sequence[Item]) -> Iterator[str]:
    """Yield registers by function, a line each, indented below the function's name."""
    function = None
    width = max((len(item["register"]) for item in items), default=0)
    for item in items:
        if item["function"] != function:
            function = item["function"]
            yield f"{function}"
        yield f"{GAP}{item['register']:{width}}{GAP}{item['value']}"
