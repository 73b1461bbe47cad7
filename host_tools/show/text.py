"""Kinds of objects, and items of them as text: a table, a page each, or what has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple

from bluebridge.device.layout.fields import Struct
from bluebridge.host_tools.errors import UsageError

Row = Mapping[str, Any]
"""An object with the fields that the device server tells."""
Item = dict[str, Any]
"""The names that users know with their values, in the order that is shown: `function` first."""

GAP = "  "


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects: `make` makes what is shown of a row, `keys` tell an item from others.

    `columns` are those of its table, the most wanted first; kinds without any are shown as lines.
    Numbers of the fields `hexadecimal` are addresses, keys, bit masks, and the numbers of queues
    that the log has in hexadecimal, too.
    """

    name: str
    title: str
    """The plural of the kind for use in a sentence."""
    number: str
    """The meaning of the argument NUMBER, in words."""
    make: Callable[[Row], Item | list[Item]]
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()
    hexadecimal: frozenset[str] = frozenset()
    offsets: bool = False
    """Whether the argument NUMBER is an offset, which is looked up here, not in the server."""

    def items(self, row: Row) -> list[Item]:
        """Return the items of a row, each with its function in front."""
        made = self.make(row)
        found = made if isinstance(made, list) else [made]
        return [{"function": row["function"], **item} for item in found]

    def key(self, item: Item) -> tuple[Any, ...]:
        """Return the function and the values of `keys`, which tell an item from all others."""
        return item.get("function", ""), *(item[name] for name in self.keys)


def gid_text(gid: bytes) -> str | None:
    """Return a GID such as `fe80::202:c9ff:fe00:1` or `::ffff:10.9.0.1`; None for zeros."""
    if not any(gid):
        return None
    address = IPv6Address(gid)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


def fields(struct: Struct, data: bytes, names: str) -> Item:
    """Return fields of a structure by the names that users know, `NAME` or `NAME=FIELD` a word.

    A dash stands for an underscore of the field's own name. A field of one bit is true or false.
    """
    found: Item = {}
    for word in names.split():
        name, _, other = word.partition("=")
        field = struct.field((other or name).replace("-", "_"))
        value = struct.get(data, field.name)
        found[name] = bool(value) if field.mask == 1 else value
    return found


def told(row: Row, without: str = "function context") -> Item:
    """Return what the device server itself tells of an object, `without` some words."""
    return {name: value for name, value in row.items() if name not in without.split()}


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
    """Yield names and a row for each item, in `width` letters; columns of no value are left out."""
    several = len({item["function"] for item in items}) > 1
    names = [*(["function"] if several else []), *kind.columns]
    columns = [
        [name, *(cell(item.get(name), hexadecimal=name in kind.hexadecimal) for item in items)]
        for name in names
    ]
    shown = [column for column in columns if set(column[1:]) != {"-"}]
    fitting = shown if width is None else shown[: _fitting(shown, width)]
    widths = [max(map(len, column)) for column in fitting]
    for row in zip(*fitting, strict=True):
        texts = (text.ljust(size) for text, size in zip(row, widths, strict=True))
        yield GAP.join(texts).rstrip()
    if left := [column[0] for column in shown[len(fitting) :]]:
        yield f"no room for: {', '.join(left)} (see one {kind.name}, --json, or a wider terminal)"


def _fitting(columns: Sequence[Sequence[str]], width: int) -> int:
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
    whole = {name: value}
    parts = {f"{name} {p}": each for p, each in value.items()} if isinstance(value, dict) else whole
    hexadecimal = name in kind.hexadecimal
    return [(each, cell(part, hexadecimal=hexadecimal)) for each, part in parts.items()]


def title(kind: Kind, item: Item) -> str:
    """Return the name of an item such as `a qp 0x49`, or `a eq 12`."""
    return " ".join(
        [
            item["function"],
            kind.name,
            *(cell(item[key], hexadecimal=key in kind.hexadecimal) for key in kind.keys),
        ]
    )


def names(items: Sequence[Item]) -> Iterator[str]:
    """Yield registers by function, a line each, indented below the function's name."""
    function = None
    width = max((len(item["register"]) for item in items), default=0)
    for item in items:
        if item["function"] != function:
            function = item["function"]
            yield f"{function}"
        yield f"{GAP}{item['register']:{width}}{GAP}{item['value']}"


class Change(NamedTuple):
    """A field whose value differs; `name` has the parts of a nested field with dots between."""

    name: str
    before: Any
    after: Any


class Difference(NamedTuple):
    """An item and its changes, which are none if it is only there `before`, or only `after`."""

    item: Item
    before: bool
    after: bool
    changes: Sequence[Change]


def load(path: Path, kind: Kind, name: str) -> list[Item]:
    """Return what `--save` wrote. Raises `OSError`, `UsageError` for another question's."""
    try:
        kept = json.loads(path.read_text())
        what, whose, items = kept["what"], kept["name"], kept["items"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path} is no file of --save", "give one, or seconds: 2s") from None
    if (what, whose) != (kind.name, name):
        raise UsageError(f"{path} is of `show {whose} {what}`", "give one of the same question")
    return list(items)


def differences(kind: Kind, before: Sequence[Item], after: Sequence[Item]) -> list[Difference]:
    """Return the items that are new, gone or changed, in order."""
    was = {kind.key(item): item for item in before}
    now = {kind.key(item): item for item in after}
    found = []
    for key in sorted(was.keys() | now.keys()):
        old, new = was.get(key), now.get(key)
        changes = list(_changes(old, new)) if old is not None and new is not None else []
        if changes or old is None or new is None:
            item = new if new is not None else old
            found.append(Difference(item or {}, old is not None, new is not None, changes))
    return found


def _changes(before: Item, after: Item) -> Iterator[Change]:
    old, new = dict(_flat(before)), dict(_flat(after))
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            yield Change(name, old.get(name), new.get(name))


def _flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in item.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def lines(kind: Kind, found: Sequence[Difference]) -> Iterator[str]:
    """Yield a line for each changed field, such as `a qp 0x49: state RTR -> RTS`."""
    for each in found:
        name = title(kind, each.item)
        if not each.before or not each.after:
            yield f"{name}: {'new' if each.after else 'gone'}"
        for change in each.changes:
            wide = change.name.partition(".")[0] in kind.hexadecimal
            old = cell(change.before, hexadecimal=wide)
            yield f"{name}: {change.name} {old} -> {cell(change.after, hexadecimal=wide)}"


def document(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return the differences as JSON objects for programs."""
    return [
        {
            "item": each.item,
            "change": "changed" if each.changes else "new" if each.after else "gone",
            "fields": {c.name: {"before": c.before, "after": c.after} for c in each.changes},
        }
        for each in found
    ]
