"""Causes of what bridges and DMA engines do: accesses, stores, doorbells, descriptors."""

from __future__ import annotations

from typing import Protocol

from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.open_activities import MAX_PARTS
from bluebridge.host_tools.analyzer.activity.resets import PAUSE_SECONDS
from bluebridge.host_tools.analyzer.transaction import Transaction


class Cause(Protocol):
    """An access, a store, a doorbell or a descriptor that is under way."""

    def effect(self, one: Transaction) -> bool:
        """List a transaction with its cause; return False if this cannot have caused it."""

    def end(self) -> Activity | None:
        """End the wait for immediate effects; return the activity if it is complete by that."""


def mark_remote(activity: Activity, one: Transaction) -> None:
    """Note whether a transaction is on the bus of another machine than its activity."""
    one.remote = host_of(one.device) != host_of(activity.device)


class Access:
    """An access of a register or of config space, a reset, or a change of the link.

    `unmasks` says whether it changes which doorbells interrupt.
    """

    def __init__(self, activity: Activity, *, unmasks: bool = False) -> None:
        self.activity = activity
        self.unmasks = unmasks
        self._place = 0  # of the last access, if they are of config space

    def effect(self, one: Transaction) -> bool:
        """List a transaction that follows from the access."""
        if len(self.activity.transactions) >= MAX_PARTS:
            return False
        mark_remote(self.activity, one)
        self.activity.add(one, self._place)
        return True

    def end(self) -> Activity:
        """Return the activity, which is then complete."""
        return self.activity

    def continues(self, one: Transaction) -> bool:
        """Return whether an access of config space continues this one, as drivers make them."""
        run = self.activity
        return (
            run.kind is ActivityKind.CONFIG
            and run.device == one.device
            and one.time - run.end < PAUSE_SECONDS
            and len(run.transactions) < MAX_PARTS
        )

    def go_on(self, one: Transaction) -> None:
        """Add the next access of config space to the activity."""
        self._place = self.activity.add(one)

    @property
    def changes_link(self) -> bool:
        """Whether the access has changed the link, which interrupts on both sides."""
        return self.activity.kind in (ActivityKind.LINK, ActivityKind.RESET)
