"""One object of a device as it is shown, and the kinds of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

Row = Mapping[str, Any]
"""An object with the fields that the device server tells."""
Item = dict[str, Any]
"""An object with the names that users know, in the order in which they are shown.

`function` comes first.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects: `items` makes items of a row, `keys` are the fields that identify one.

    `columns` are those of its table, the most wanted first; kinds without any are shown as lines.
    Numbers of the fields `hexadecimal` are addresses, keys, bit masks, and the numbers of queues
    that the log has in hexadecimal, too.
    """

    name: str
    title: str
    """The plural of the kind for use in a sentence."""
    number: str
    """The meaning of the argument NUMBER, in words."""
    items: Callable[[Row], Sequence[Item]]
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()
    hexadecimal: frozenset[str] = frozenset()
    offsets: bool = False
    """Whether the argument NUMBER is an offset, which is looked up here, not in the server."""

    def key(self, item: Item) -> tuple[Any, ...]:
        """Return the function and the values of `keys`, which tell an item from all others."""
        return item.get("function", ""), *(item[name] for name in self.keys)


def gid_text(gid: bytes) -> str | None:
    """Return a GID as text such as `fe80::202:c9ff:fe00:1`; None for zeros.

    One of an IPv4 address is `::ffff:10.9.0.1`.
    """
    if not any(gid):
        return None
    address = IPv6Address(gid)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
