"""Holds doorbells back until a Switchtec driver knows that its link is up.

The link of these drivers is software: they tell each other through messages. ntb_perf takes a
doorbell that comes before its own link event for one of a link that is down, and its peer waits for
an answer for ever. So such doorbells are delayed, never dropped. What a driver knows can only be
estimated from its messages, and there are drivers that send none at all.
"""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.ntb.switchtec import LinkMessage
from bluebridge.device.ntb.link import HOLD_SECONDS
from bluebridge.device.pci.bus import Timer

LONGEST_SECONDS = 2.0
"""Seconds for which doorbells wait at most for a driver's message that it saw the link."""


class DoorbellGate:
    """Holds the doorbells of one side from when both drivers want the link until its driver knows.

    A driver says that its view of the link has changed (switchtec_ntb_link_status_update), but not
    to what, and not when it is forced down (check_link_status_work): messages cannot be counted.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        deliver: Callable[[int], None],
    ) -> None:
        self._call_later = call_later
        self._deliver = deliver
        self._timer: Timer | None = None
        self._held = 0
        self.wanted = False
        """Whether this side's driver wants the link."""

    def sent(self, message: int, peer: DoorbellGate) -> None:
        """Note that this side's driver sent its peer a message about the link."""
        if message == LinkMessage.UP:
            self.wanted = True
            if peer.wanted:
                self._hold(LONGEST_SECONDS)
                peer._hold(LONGEST_SECONDS)
        elif message in (LinkMessage.DOWN, LinkMessage.FORCE_DOWN):
            self.wanted = False
        elif message == LinkMessage.CHECK and self._timer is not None:
            self._hold(HOLD_SECONDS)

    def ring(self, bits: int) -> None:
        """Deliver doorbells of the peer, or hold them until the driver knows of the link."""
        if self._timer is not None:
            self._held |= bits
        else:
            self._deliver(bits)

    def reset(self) -> None:
        """Forget the state of this side's driver and the doorbells that were held for it."""
        self._stop()
        self.wanted, self._held = False, 0

    def _hold(self, seconds: float) -> None:
        self._stop()
        self._timer = self._call_later(seconds, self._release)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        self._timer = None
        bits, self._held = self._held, 0
        if bits:
            self._deliver(bits)
