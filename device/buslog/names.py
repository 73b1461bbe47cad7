"""Names of devices in a log, which know the card of an adapter."""

from __future__ import annotations


class DeviceName(str):
    """The name of a device, such as `a` or `a/2`, as text; `card` is that of an adapter.

    A name without a card is that of a ConnectX-3, or of a device that is no adapter: logs had no
    cards before there was a second one.
    """

    __slots__ = ("card",)

    card: str

    def __new__(cls, name: str, card: str = "") -> DeviceName:
        """Make a name."""
        found = super().__new__(cls, name)
        found.card = card
        return found
