"""Pages that a driver lends to the firmware for its own use; this firmware keeps nothing there."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.settings.refusal import CommandError

FIRMWARE_PAGES: Final = 64
"""4 KiB pages that QUERY_FW asks for. Drivers compute sizes from it that zero would break."""
AUXILIARY_PAGES: Final = 64
"""4 KiB pages that SET_ICM_SIZE asks for."""


class LentPages:
    """Counts the pages of one area, of which `wanted` are asked for."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._lent = 0

    def lend(self, pages: int) -> None:
        """Some more; raises `CommandError` (EXCEED_LIM) beyond what is wanted."""
        if self._lent + pages > self.wanted:
            raise CommandError(
                Status.EXCEED_LIM, f"{self._lent + pages} pages, {self.wanted} were asked for"
            )
        self._lent += pages

    def take_back(self) -> None:
        """All of them."""
        self._lent = 0
