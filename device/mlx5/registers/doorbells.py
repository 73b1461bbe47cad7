"""Pages of doorbells (UAR) in BAR0: which are in use, and what a store to one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.init_segment import (
    CQ_DOORBELL,
    EQ_ARM,
    EQ_UPDATE,
    FIRST_UAR,
    SEND_DOORBELL,
    UAR_BYTES,
    UARS,
)
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.settings.refused import Refused

MOST_UARS: Final = UARS
WORD: Final = 4

Arm = Callable[[int, int], None]
"""Takes the two words of a request for an event of a completion queue."""
Ring = Callable[[int, int, bytes], None]
"""Takes a store to a page's registers for sends: page, offset in the page, bytes."""


class Doorbells:
    """The pages of doorbells of one adapter.

    `arm` and `ring` take what is not for event queues; they do nothing until they are set.
    """

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs
        self._used: set[int] = set()
        self._next = FIRST_UAR
        self._high: dict[int, int] = {}
        """First words of requests whose second has not come, by page."""
        self.arm: Arm | None = None
        self.ring: Ring | None = None

    def reset(self) -> None:
        """Free all pages."""
        self._used.clear()
        self._high.clear()
        self._next = FIRST_UAR

    def numbers(self) -> list[int]:
        """The numbers of the pages in use."""
        return sorted(self._used)

    def allocate(self) -> int:
        """Return the number of a page that was free; raises `Refused` (LIM_ERR)."""
        if len(self._used) == MOST_UARS:
            raise Refused(Status.LIM_ERR, f"all {MOST_UARS} pages of doorbells are in use")
        while self._next in self._used:
            self._next = self._next + 1 if self._next + 1 < FIRST_UAR + UARS else FIRST_UAR
        self._used.add(self._next)
        return self._next

    def free(self, number: int) -> None:
        """Free a page; raises `Refused` (BAD_RES) for one that is not in use."""
        if number not in self._used:
            raise Refused(Status.BAD_RES, f"there is no UAR {number:#x}")
        self._used.discard(number)
        self._high.pop(number, None)
        self._next = min(self._next, number)

    def write(self, offset: int, data: bytes) -> None:
        """Take a store of BAR0; those to pages that are not in use have no effect."""
        page, register = divmod(offset, UAR_BYTES)
        if page not in self._used:
            return
        if register in (EQ_ARM, EQ_UPDATE) and len(data) >= WORD:
            self._eqs.doorbell(int.from_bytes(data[:WORD], "big"), arm=register == EQ_ARM)
        elif register == CQ_DOORBELL and len(data) == 2 * WORD:
            self._request(int.from_bytes(data[:WORD], "big"), int.from_bytes(data[WORD:], "big"))
        elif register == CQ_DOORBELL and len(data) == WORD:
            self._high[page] = int.from_bytes(data, "big")
        elif register == CQ_DOORBELL + WORD and len(data) == WORD:
            self._request(self._high.pop(page, 0), int.from_bytes(data, "big"))
        elif register >= SEND_DOORBELL and self.ring is not None:
            self.ring(page, register, data)

    def _request(self, high: int, low: int) -> None:
        if self.arm is not None:
            self.arm(high, low)
