"""The pages of BAR2: doorbells in user access region pages, then BlueFlame.

Linux `mlx4/main.c: map_bf_area`, `inc/cq.h`.

A page is what a process may reach: it rings only for queues whose context names that page
(`usr_page`), and its EQ doorbells are those of EQ numbers 4*page to 4*page+3.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.uar import (
    CQ_DOORBELL,
    EQ_DOORBELL,
    PAGE_SIZE,
    SEND_DOORBELL,
    UAR_AREA_SIZE,
)
from bluebridge.device.mlx4.pairs import HcaPair
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.queue_pairs import QueuePairs
from bluebridge.device.rings.blueflame import BlueFlame, StoredRing

PAGE_SHIFT: Final = PAGE_SIZE.bit_length() - 1
EQ_DOORBELL_END: Final = EQ_DOORBELL + 4 * 8


class UserAccessRegion:
    """The pages of BAR2, which hand doorbells to the queues of one HCA."""

    def __init__(
        self,
        bus: HostBus,
        features: Features,
        parameters: Parameters,
        *,
        qps: QueuePairs,
        cqs: CompletionQueues,
        eqs: EventQueues,
    ) -> None:
        self._parameters = parameters
        self._qps = qps
        self._cqs = cqs
        self._eqs = eqs
        self._latched: dict[int, int] = {}
        self._blueflame = BlueFlame(
            bus, self._ring_of, size=features.blueflame_register, base=UAR_AREA_SIZE
        )

    def reset(self) -> None:
        """Forget halves of doorbells and incomplete BlueFlame entries."""
        self._latched.clear()
        self._blueflame.reset()

    def write(self, offset: int, data: bytes) -> None:
        """Handle a write to BAR2.

        A write is ignored without INIT_HCA, at an offset of a page without a doorbell, and for
        queues that do not exist or are those of another page.
        """
        if not self._parameters.initialised:
            return
        if offset >= UAR_AREA_SIZE:
            self._blueflame.write(offset - UAR_AREA_SIZE, data)
            return
        page, register = offset >> PAGE_SHIFT, offset & (PAGE_SIZE - 1)
        value = int.from_bytes(data, "big")
        if register == SEND_DOORBELL and len(data) == 4:
            qpn = value >> 8
            if self._blueflame.open:
                self._blueflame.fence(page, "a doorbell", qpn)
            queue = self._ring_of(qpn)
            if queue is not None and queue.page == page:
                queue.ring()
        elif CQ_DOORBELL <= register < CQ_DOORBELL + 8:
            self._cq(page, register, value, len(data))
        elif EQ_DOORBELL <= register < EQ_DOORBELL_END and not register & 7 and len(data) == 4:
            self._eqs.doorbell(page * 4 + (register - EQ_DOORBELL) // 8, value)

    def _ring_of(self, qpn: int) -> StoredRing | None:
        qp = self._qps.get(qpn)
        return qp.sq if isinstance(qp, HcaPair) and isinstance(qp.sq, SendRing) else None

    def read(self, offset: int) -> None:
        """Handle a read of BAR2, which returns nothing and only pushes stores out before it."""
        self._blueflame.fence(offset % UAR_AREA_SIZE >> PAGE_SHIFT, "a read")

    def _cq(self, page: int, register: int, value: int, length: int) -> None:
        """Take the 8-byte CQ doorbell in one piece, or as two halves in ascending order."""
        if length == 8 and register == CQ_DOORBELL:
            self._cqs.doorbell(page, value)
        elif length == 4 and register == CQ_DOORBELL:
            self._latched[page] = value
        elif length == 4 and register == CQ_DOORBELL + 4 and page in self._latched:
            self._cqs.doorbell(page, self._latched.pop(page) << 32 | value)
