"""The registers for sends in pages of doorbells, when entries may be stored into them (BlueFlame).

A register takes both: the first 8 bytes of an entry alone are a doorbell, a whole entry is sent as
it is. A processor that combines stores sends either as one write. Under QEMU each store of 8 bytes
comes alone, so that after the first one nobody can know whether more follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.layout.blueflame import HEAD_BYTES, INDEX_MASK, INDEX_SHIFT, QPN_SHIFT
from bluebridge.device.layout.mlx5.init_segment import BLUEFLAME_BUFFER, UAR_BYTES
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.blueflame import BEHIND, HEAD, BlueFlame, StoreRegister

QUIET_SECONDS: Final = 0.1
"""Seconds without a store after which the first 8 bytes of an entry are a doorbell; at most twice
that. Software that rings where others store waits for it once at each register.
"""


class SendRegisters(BlueFlame):
    """The registers for sends of one adapter.

    Whether stores follow the first 8 bytes is guessed, from the next entry in the ring and from
    what a register had last time. A wrong guess costs time or a read, never an entry: what is
    taken for a doorbell is fetched, and what is not becomes one when no store follows.
    """

    def __init__(self, bus: HostBus, find: Callable[[int], SendRing | None]) -> None:
        super().__init__(bus, find, size=2 * BLUEFLAME_BUFFER, quiet=QUIET_SECONDS)
        self._ring_of = find
        self._habits: dict[int, bool] = {}
        """Registers whose software did not do as their entries let expect: whether it stores."""
        self._rung = (0, -1)
        """The register that was taken to be rung last, and where a further store would begin."""

    def reset(self) -> None:
        """Forget entries that are incomplete, and the habits of software."""
        super().reset()
        self._habits.clear()
        self._rung = (0, -1)

    def forget(self, page: int) -> None:
        """Forget the entries and habits of the software that had a page until now."""
        each = UAR_BYTES // (2 * BLUEFLAME_BUFFER)
        for number in range(page * each, page * each + each):
            self.open.pop(number, None)
            self._habits.pop(number, None)

    def write(self, offset: int, data: bytes) -> None:
        """Take a store at an offset of the BAR."""
        number, after = self._rung
        self._rung = (0, -1)
        if offset == after:
            self._surprised(number, stores=True)
        super().write(offset, data)
        number = offset // (2 * BLUEFLAME_BUFFER)
        register = self.open.get(number)
        if register is not None and offset % BLUEFLAME_BUFFER + len(data) == HEAD_BYTES:
            self._began(number, register, offset + len(data))

    def _began(self, number: int, register: StoreRegister, after: int) -> None:
        """Ring at once unless the rest of the entry is on its way."""
        head = register.head()
        if head is None or register.entry is not None:
            return
        queue = self._ring_of(head[1] >> QPN_SHIFT)
        if queue is None:
            return
        ahead = _ahead(head[0], queue)
        if ahead >= BEHIND:  # it was fetched before; what follows is told of when it is whole
            queue.ring()
            return
        if not ahead:
            expected = self._habits.get(number)
            if expected is None:
                expected = queue.stores_follow(BLUEFLAME_BUFFER)
            if expected:
                return
            self._rung = (number, after)
        del self.open[number]
        queue.ring()

    def _give_up(self, register: StoreRegister, reason: str) -> None:
        """Take the first 8 bytes of an entry for a doorbell if nothing followed them."""
        entry = register.entry
        if entry is None or len(entry) != HEAD_BYTES:
            super()._give_up(register, reason)
            return
        register.entry = None
        word0, word1 = HEAD.unpack(entry)
        queue = self._ring_of(word1 >> QPN_SHIFT)
        if queue is not None:
            if not _ahead(word0, queue):
                self._surprised(register.number, stores=False)
            queue.ring()

    def _surprised(self, number: int, *, stores: bool) -> None:
        """Remember that a guess was wrong; one after the other means that software does both."""
        if self._habits.pop(number, None) is None:
            self._habits[number] = stores


def _ahead(word0: int, queue: SendRing) -> int:
    """Return how many blocks after the entry that is due the one with this first word comes."""
    return ((word0 >> INDEX_SHIFT) - queue.index) & INDEX_MASK
