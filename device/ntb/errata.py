"""Errata of the first generation, which lock the machine up: they are counted or played out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from time import monotonic

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb.gen1 import CONFIGURATION_ERRATUM, DOORBELL_ERRATUM
from bluebridge.device.pci.host import MasterBus
from bluebridge.device.throttle import Throttle

WINDOW_SECONDS = 0.005
"""Seconds within which two accesses count as simultaneous."""
_NEVER = float("-inf")


class Hazards:
    """Counts accesses that the hardware's errata turn into a lock-up; `counts` is by erratum.

    After such an access for an erratum in `hang`, the bridge is `hung` until its reset, and
    `on_hang` is called.
    """

    def __init__(
        self,
        bus: MasterBus,
        clock: Callable[[], float] = monotonic,
        hang: Collection[str] = (),
        on_hang: Callable[[], None] = lambda: None,
    ) -> None:
        self.hung = False
        self._hang = frozenset(hang)
        self._on_hang = on_hang
        self._bus = bus
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self._throttle = Throttle()
        self._out = self._into = self._peer = _NEVER

    def outbound(self) -> None:
        """Note that an access went out through a window."""
        self._out = self.clock()

    def inbound(self) -> None:
        """Note that an access of the peer came in through a window."""
        self._into = self.clock()

    def peer_access(self) -> None:
        """Note that the peer accessed the registers, on the middle bus."""
        self._peer = self.clock()

    def register_access(self) -> None:
        """Check an access of the guest to the registers for an erratum."""
        since = self.clock() - WINDOW_SECONDS
        if self._out >= since and self._into >= since:
            self._count(CONFIGURATION_ERRATUM)

    def doorbell_access(self) -> None:
        """Check a write of the guest to a doorbell register that rings the peer."""
        if self._peer >= self.clock() - WINDOW_SECONDS:
            self._count(DOORBELL_ERRATUM)

    def revive(self) -> None:
        """Forget all accesses and let a hung bridge work again, after a reset or power-on."""
        self.hung = False
        self._out = self._into = self._peer = _NEVER

    def _count(self, erratum: str) -> None:
        self.counts[erratum] += 1
        if erratum in self._hang:
            if not self.hung:
                self.hung = True
                self._bus.tell(Fact.BRIDGE_HANGS, erratum=erratum)
                self._on_hang()
            return
        if self._throttle.admits():
            count = self.counts[erratum]
            self._bus.tell(Fact.BRIDGE_MIGHT_HANG, erratum=erratum, count=count)
