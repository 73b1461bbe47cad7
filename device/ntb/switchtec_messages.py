"""Messages and doorbells that a Switchtec driver receives: one message at a time in each slot.

The link of these drivers is software: they tell each other through messages. ntb_perf takes a
doorbell that comes before its own link event for one of a link that is down, and its peer waits for
an answer for ever. So such doorbells are delayed, never dropped. What a driver knows can only be
estimated from its messages, and there are drivers that send none at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bluebridge.device.layout.ntb import switchtec as layout
from bluebridge.device.layout.ntb.switchtec import LinkMessage
from bluebridge.device.ntb.shape import HOLD_SECONDS
from bluebridge.device.pci.bus import Timer

LINK = 0
"""The slot of messages about the link (`LinkMessage`)."""
MOST_MESSAGES = 64
"""Messages that wait for a slot at most; beyond it the oldest are dropped."""
REMINDER_SECONDS = 0.05
"""Seconds after which a message that the driver has not read interrupts again.

A driver lets messages in, then names their vector, then requests that (switchtec_ntb_add). One that
comes between would wait in the pending bits of MSI-X, which QEMU keeps from the server. It is its
peer's FORCE_DOWN, and taken much later, when the link comes up, it takes the link down again.
"""
REMINDERS = 200
SETTLING_SECONDS = 0.5
"""Seconds for which messages wait behind a FORCE_DOWN, unless its work begins before.

The driver's interrupt handler sets a flag and schedules one piece of work for any link message
(switchtec_ntb_check_link). The work does for a set flag what FORCE_DOWN asks for, and nothing else:
an UP that comes before it has begun is lost. It begins with a lock on a control block, to set the
peer's window up again (switchtec_ntb_reinit_peer).
"""

Register = Callable[[str], int]

LONGEST_SECONDS = 2.0
"""Seconds for which doorbells wait at most for a driver's message that it saw the link."""


class Inbox:
    """The message slots of one partition.

    `get` and `put` access its registers by name; `interrupt` raises the interrupt of a slot.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        get: Register,
        put: Callable[[str, int], None],
        interrupt: Callable[[int], None],
    ) -> None:
        self._call_later = call_later
        self._get = get
        self._put = put
        self._interrupt = interrupt
        self._reminder: Timer | None = None
        self._settling: Timer | None = None
        self._forced = False  # the link's slot holds a FORCE_DOWN that was not taken yet
        self._waiting: list[deque[tuple[int, int]]] = [
            deque(maxlen=MOST_MESSAGES) for _ in range(layout.MESSAGES)
        ]

    def receive(self, source: int, value: int) -> None:
        """Queue message `value` for each slot that takes messages of `source`, slot and partition.

        A message waits while the driver has not taken the one before: the driver reads a message
        and then clears its status, and would clear that of the next one
        (switchtec_ntb_message_isr).
        """
        wanted = self._get("message_map").to_bytes(4, "little")
        for slot, source_wanted in enumerate(wanted):
            if source_wanted == source:
                self._waiting[slot].append((source, value))
                self._deliver(slot)

    def taken(self, slot: int) -> None:
        """Deliver the next message of a slot, whose status the driver has written."""
        if slot == LINK and self._forced and not self._get(f"inbound{slot}_status") & 1:
            self._forced = False
            self._settling = self._call_later(SETTLING_SECONDS, self._settled)
        self._deliver(slot)

    def began_work(self) -> None:
        """Note that the driver locks a control block, as it does when it handles FORCE_DOWN."""
        if self._settling is not None:
            self._settling.cancel()
            self._settled()

    def forget(self) -> None:
        """Drop all waiting messages, because a new driver begins: they were for another one."""
        for waiting in self._waiting:
            waiting.clear()
        self._forced = False
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def reset(self) -> None:
        """Return to the power-on state."""
        self.forget()
        self._remind_later(0)

    def _settled(self) -> None:
        self._settling = None
        self._deliver(LINK)

    def _deliver(self, slot: int) -> None:
        if not self._waiting[slot] or self._get(f"inbound{slot}_status") & 1:
            return
        if slot == LINK and self._settling is not None:
            return
        source, value = self._waiting[slot].popleft()
        if slot == LINK:
            self._forced = value == LinkMessage.FORCE_DOWN
        self._put(f"inbound{slot}", value)
        self._put(f"inbound{slot}_source", source)
        self._put(f"inbound{slot}_status", 1)
        if self._get(f"inbound{slot}_enable") & 1:
            self._interrupt(slot)
            self._remind_later(REMINDERS)

    def _remind_later(self, left: int) -> None:
        if self._reminder is not None:
            self._reminder.cancel()
        later = self._call_later
        self._reminder = later(REMINDER_SECONDS, lambda: self._remind(left)) if left else None

    def _remind(self, left: int) -> None:
        self._reminder = None
        untaken = [
            slot
            for slot in range(layout.MESSAGES)
            if self._get(f"inbound{slot}_status") & self._get(f"inbound{slot}_enable") & 1
        ]
        for slot in untaken:
            self._interrupt(slot)
        if untaken:
            self._remind_later(left - 1)


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
