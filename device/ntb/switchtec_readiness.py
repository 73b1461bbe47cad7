"""When a Switchtec driver may be rung: its link is software, so its messages have to tell.

ntb_perf takes a doorbell that comes before its own link event for one of a link that is down, and
its peer waits for an answer for ever. The switch delays such doorbells and never keeps them: what a
driver knows can only be guessed, and there are drivers that send no messages at all.
"""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.ntb.switchtec import LinkMessage
from bluebridge.device.ntb.link import HOLD_SECONDS
from bluebridge.device.pci.bus import Timer

LONGEST_SECONDS = 2.0
"""How long doorbells wait for a driver that does not say that it has seen the link."""


class Hearing:
    """One side: holds doorbells from the moment both drivers want the link until it knows.

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

    def sent(self, message: int, peer: Hearing) -> None:
        """This side's driver sent its peer a message about the link."""
        if message == LinkMessage.UP:
            self.wanted = True
            if peer.wanted:
                self._wait(LONGEST_SECONDS)
                peer._wait(LONGEST_SECONDS)
        elif message in (LinkMessage.DOWN, LinkMessage.FORCE_DOWN):
            self.wanted = False
        elif message == LinkMessage.CHECK and self._timer is not None:
            self._wait(HOLD_SECONDS)

    def ring(self, bits: int) -> None:
        """Doorbells of the peer: now, or soon."""
        if self._timer is not None:
            self._held |= bits
        else:
            self._deliver(bits)

    def reset(self) -> None:
        """The driver is gone, and what waited for it."""
        self._stop()
        self.wanted, self._held = False, 0

    def _wait(self, seconds: float) -> None:
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
