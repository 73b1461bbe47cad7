"""Which queue pairs and completion queues are open, by number."""

from __future__ import annotations

from typing import Protocol

from bluebridge.guest.verbs.objects import CompletionQueue


class CompletionOwner(Protocol):
    """What a completion queue asks of the queue pair that a completion belongs to."""

    @property
    def qpn(self) -> int:
        """Its number."""

    @property
    def port_number(self) -> int:
        """The port it is on, from 1 on."""

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one with 16-bit `index`; its wr_id."""

    def complete_recv(self, index: int) -> int:
        """Retire the oldest receive entry, or SRQ entry `index`; its wr_id."""

    def return_receive(self, index: int) -> None:
        """Give SRQ entry `index` back, whose completion nobody will read."""

    def destroy(self) -> None:
        """Reset it and give everything back."""


class EventOwner(CompletionQueue, Protocol):
    """What a completion channel asks of the completion queue that an event belongs to."""

    def notified(self) -> None:
        """Count an event: the next arming carries the next sequence number."""
