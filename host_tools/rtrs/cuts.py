"""Cutting a path between two guests, and restoring it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Tell = Callable[[str], list[str]]
"""Has the device server carry out a line of `bluebridge.device.server.control`."""


class Cut(StrEnum):
    """A way to cut a path."""

    SILENT = "silent"
    """Messages vanish in both directions; the link stays up."""
    LOUD = "loud"
    """The cable is pulled: both ends see their link go."""


_LINES = {
    Cut.SILENT: ("drop {port}", "remove {port}"),
    Cut.LOUD: ("link {port} down", "link {port} up"),
}


class Cutter:
    """Cuts ports, which are named as the control socket does (`a/2`)."""

    def __init__(self, tell: Tell, how: Cut) -> None:
        self._tell = tell
        self._cut, self._restore = _LINES[how]

    def cut(self, port: str) -> None:
        """Let nothing pass the port's link from now on. Raises `LabError`."""
        self._tell(self._cut.format(port=port))

    def restore(self, port: str) -> None:
        """Everything passes again. Raises `LabError`."""
        self._tell(self._restore.format(port=port))
