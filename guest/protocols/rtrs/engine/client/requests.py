"""A request in flight: one for each slot, whichever path it is on."""

from __future__ import annotations

from typing import Final

from bluebridge.guest.protocols.rtrs.engine.actions import Direction

NOWHERE: Final = -1
"""Instead of a path: in flight, but its path is broken and no other is connected yet."""


class ClientRequest:
    """The request that uses a slot: kept until its answer, since another path may repeat it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.path = 0
        """Number of the path that it was sent on; 0: not in flight; NOWHERE."""
        self.connection = 0
        """The number of the connection."""
        self.direction = Direction.READ
        self.user = b""
        self.length = 0
        self.cpu = 0
        self.admin = False
        self.counted = False
        """Whether it counts in the path's `inflight`."""
        self.need_inval = False
        """Whether the slot's key is not known to have ended."""
        self.invalidating = False
        """Answered, and waits for the end of its key."""
        self.errno = 0
