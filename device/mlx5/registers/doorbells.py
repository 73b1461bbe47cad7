"""Pages of doorbells (UAR) in BAR0: which are in use, and what a store to one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.layout.blueflame import QPN_SHIFT
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.init_segment import (
    BLUEFLAME_BUFFER,
    CQ_DOORBELL,
    EQ_ARM,
    EQ_UPDATE,
    FIRST_UAR,
    SEND_DOORBELL,
    UAR_BYTES,
    UARS,
)
from bluebridge.device.mlx5.registers.send_registers import SendRegisters
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus

MOST_UARS: Final = UARS
WORD: Final = 4

Find = Callable[[int], SendRing | None]
"""Returns the entries of the send queue with a number."""
Arm = Callable[[int, int], None]
"""Takes the two words of a request for an event of a completion queue."""


class Doorbells:
    """The pages of doorbells of one adapter.

    `arm` takes requests of completion queues, `find` returns the send queue of a number; they do
    nothing until they are set. With `blueflame` entries may be stored into the pages.
    """

    def __init__(self, bus: HostBus, eqs: EventQueues, *, blueflame: bool = False) -> None:
        self._eqs = eqs
        self._used: set[int] = set()
        self._next = FIRST_UAR
        self._high: dict[int, int] = {}
        """First words of requests whose second has not come, by page."""
        self.arm: Arm | None = None
        self.find: Find = _no_queue
        self._stores = SendRegisters(bus, self._found) if blueflame else None

    def reset(self) -> None:
        """Free all pages."""
        self._used.clear()
        self._high.clear()
        self._next = FIRST_UAR
        if self._stores is not None:
            self._stores.reset()

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
        if self._stores is not None:
            self._stores.forget(number)

    def write(self, offset: int, data: bytes) -> None:
        """Take a store of BAR0; those to pages that are not in use have no effect."""
        page, register = divmod(offset, UAR_BYTES)
        if page not in self._used:
            return
        if register >= SEND_DOORBELL:
            if self._stores is not None:
                self._stores.write(offset, data)
            else:
                self._send(register % BLUEFLAME_BUFFER, data)
        elif register in (EQ_ARM, EQ_UPDATE) and len(data) >= WORD:
            self._eqs.doorbell(int.from_bytes(data[:WORD], "big"), arm=register == EQ_ARM)
        elif register == CQ_DOORBELL and len(data) == 2 * WORD:
            self._request(int.from_bytes(data[:WORD], "big"), int.from_bytes(data[WORD:], "big"))
        elif register == CQ_DOORBELL and len(data) == WORD:
            self._high[page] = int.from_bytes(data, "big")
        elif register == CQ_DOORBELL + WORD and len(data) == WORD:
            self._request(self._high.pop(page, 0), int.from_bytes(data, "big"))

    def read(self, offset: int) -> None:
        """Take a read of a page, which returns nothing and only pushes stores out before it."""
        if self._stores is not None:
            self._stores.fence(offset // UAR_BYTES, "a read")

    def _send(self, place: int, data: bytes) -> None:
        """Take a store into a register for sends, behind whose 8 bytes the entry may follow.

        UCX stores its entries whole, whether that is offered or not.
        """
        if place <= WORD and place + len(data) >= 2 * WORD:
            number = data[WORD - place : 2 * WORD - place]
            self._ring(int.from_bytes(number, "big") >> QPN_SHIFT)

    def _ring(self, number: int) -> None:
        """Ring for a queue, which any page may.

        The second half of a doorbell alone is enough: it has the queue's number. How far to go is
        in the queue's doorbell record.
        """
        queue = self.find(number)
        if queue is not None:
            queue.ring()

    def _found(self, number: int) -> SendRing | None:
        return self.find(number)

    def _request(self, high: int, low: int) -> None:
        if self.arm is not None:
            self.arm(high, low)


def _no_queue(number: int) -> SendRing | None:
    return None
