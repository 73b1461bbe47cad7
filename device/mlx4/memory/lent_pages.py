"""Pages that a driver lends to the firmware, which stores nothing in them."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.settings.refusal import CommandError

FIRMWARE_PAGES: Final = 64
"""Number of 4 KiB pages that QUERY_FW asks for; drivers compute sizes that zero would break."""
AUXILIARY_PAGES: Final = 64
"""Number of 4 KiB pages that SET_ICM_SIZE asks for."""


class LentPages:
    """A count of the pages lent to one area, which asks for `wanted`."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._lent = 0

    def lend(self, pages: int) -> None:
        """Count more pages; raises `CommandError` (EXCEED_LIM) beyond `wanted`."""
        if self._lent + pages > self.wanted:
            raise CommandError(
                Status.EXCEED_LIM, f"{self._lent + pages} pages, {self.wanted} were asked for"
            )
        self._lent += pages

    def take_back(self) -> None:
        """Give all pages back."""
        self._lent = 0
