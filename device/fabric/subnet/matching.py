"""The component mask of a query, which names the fields of its example that records must match."""

from __future__ import annotations

from collections.abc import Iterable

from bluebridge.device.layout.fields import Struct

MORE, LESS, EXACTLY, BEST = 0, 1, 2, 3
_SELECTED = {"mtu": "mtu_selector", "rate": "rate_selector", "life": "life_selector"}


def named(table: Struct, mask: int) -> set[str]:
    """Return the fields that a component mask names; unknown bits count as a field called `?`."""
    names = {item.name for number, item in enumerate(table) if mask >> number & 1}
    return names | {"?"} if mask >> len(table.fields) else names


def matches(
    table: Struct,
    example: bytes,
    record: bytes | bytearray,
    names: Iterable[str],
    ignore: frozenset[str],
) -> bool:
    """Return True if `record` agrees with `example` in the named fields."""
    for name in names:
        if name in ignore or name not in table or name in _SELECTED.values():
            continue
        selector = _SELECTED.get(name)
        if selector is not None:
            how = table.get(example, selector) if selector in names else EXACTLY
            if not _selected(how, table.get(record, name), table.get(example, name)):
                return False
        elif table.field(name).raw:
            if table.get_raw(record, name) != table.get_raw(example, name):
                return False
        elif table.get(record, name) != table.get(example, name):
            return False
    return True


def _selected(how: int, offered: int, wanted: int) -> bool:
    """Return True if an MTU, rate or packet life time meets a selector (15.2.5.16)."""
    if how == MORE:
        return offered > wanted
    if how == LESS:
        return offered < wanted
    return how == BEST or offered == wanted
