"""Cuts a path between two guests, and restores it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Tell = Callable[[str], list[str]]
"""Has the device server carry out a line of its control socket; returns the answer's lines."""


class Cut(StrEnum):
    """A way to cut a path."""

    SILENT = "silent"
    """All messages are dropped in both directions; the link stays up."""
    LOUD = "loud"
    """The cable is disconnected: both ends see their link go down."""


_LINES = {
    Cut.SILENT: ("drop {port}", "remove {port}"),
    Cut.LOUD: ("link {port} down", "link {port} up"),
}


class Cutter:
    """Cuts the links of ports, which have their names in the control socket (`a/2`)."""

    def __init__(self, tell: Tell, how: Cut) -> None:
        self._tell = tell
        self._cut, self._restore = _LINES[how]

    def cut(self, port: str) -> None:
        """Cut the port's link, so that nothing passes it. Raises `LabError`."""
        self._tell(self._cut.format(port=port))

    def restore(self, port: str) -> None:
        """Restore the port's link, so that everything passes it. Raises `LabError`."""
        self._tell(self._restore.format(port=port))
