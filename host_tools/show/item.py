"""One object as it is shown, and the kinds of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
"""An object as the device server tells it."""
Item = dict[str, Any]
"""An object with the names that users know, in the order of a page: `function` comes first."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects: `items` makes them of a row, `keys` tell one from the other.

    `columns` are those of its table, the most wanted first; kinds without any are shown as lines.
    Numbers of the fields `hexadecimal` are addresses, keys, bit masks, and the numbers of queues
    that the log has in hexadecimal, too.
    """

    name: str
    title: str
    """In a sentence, several of them."""
    number: str
    """What NUMBER is."""
    items: Callable[[Row], Sequence[Item]]
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()
    hexadecimal: frozenset[str] = frozenset()
    offsets: bool = False
    """Whether NUMBER is an offset, which the device server leaves to us to find."""

    def key(self, item: Item) -> tuple[Any, ...]:
        """What tells an item from all others."""
        return item.get("function", ""), *(item[name] for name in self.keys)
