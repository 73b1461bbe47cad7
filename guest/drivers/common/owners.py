"""What completions and events are for: queue pairs, completion queues."""

from __future__ import annotations

from typing import Protocol

from bluebridge.guest.verbs.values import CompletionQueue


class CompletionOwner(Protocol):
    """The calls that a completion queue makes to the queue pair of a completion."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    @property
    def port_number(self) -> int:
        """The number of the queue pair's port, from 1 on."""

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one with 16-bit `index`; returns its wr_id."""

    def complete_recv(self, index: int) -> int:
        """Retire the oldest receive entry, or SRQ entry `index`; returns its wr_id."""

    def return_receive(self, index: int) -> None:
        """Give SRQ entry `index` back, whose completion nobody will read."""

    def destroy(self) -> None:
        """Reset the queue pair and free its resources."""


class EventOwner(CompletionQueue, Protocol):
    """The calls that a completion channel makes to the completion queue of an event."""

    def notified(self) -> None:
        """Count an event: the next arming carries the next sequence number."""
