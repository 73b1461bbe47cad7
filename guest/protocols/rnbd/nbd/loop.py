"""The interface of a loop that waits for descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Handler = Callable[[int], None]
"""The type of a call that takes the events of `select.poll` that came."""


class Loop(Protocol):
    """The part of `bluebridge.guest.protocols.rtrs.transport.loop.Loop` that a device needs."""

    def register(self, fd: int, events: int, handler: Handler) -> None:
        """Call `handler` when one of `events` (`select.POLLIN` and so on) comes.

        A descriptor that is registered gets other events and another handler.
        """

    def unregister(self, fd: int) -> None:
        """Forget a descriptor."""
