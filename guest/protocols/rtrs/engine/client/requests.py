"""The requests in flight of a session: one for each slot, whichever path it is on."""

from __future__ import annotations

from typing import Final

from bluebridge.guest.protocols.rtrs.engine.actions import Direction

NOWHERE: Final = -1
"""The path number of a request whose path broke while no other is connected yet."""


class ClientRequest:
    """The request of a slot, kept until its answer, since another path may repeat it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.path = 0
        """The number of the path that the request was sent on; 0 when not in flight, or NOWHERE."""
        self.connection = 0
        """The number of the connection that the request was sent on."""
        self.direction = Direction.READ
        self.user = b""
        self.length = 0
        self.cpu = 0
        self.admin = False
        self.counted = False
        """True if the request counts in the path's `inflight`."""
        self.need_inval = False
        """True while the slot's key is not known to have ended."""
        self.invalidating = False
        """True for a request that is answered and waits for the end of its key."""
        self.errno = 0
