"""The difference between two moments: the items that were kept, and those now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.show.item import Item, Kind
from bluebridge.host_tools.show.text import cell, title


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
    """Return the items that `--save` wrote.

    Raises `OSError`, `UsageError` for the items of another question.
    """
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
