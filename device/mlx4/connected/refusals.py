"""Why a responder does not carry out a request."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.operations import Syndrome


class Nak(Exception):
    """A request that is refused: the syndrome for the peer, the event for our software."""

    def __init__(self, syndrome: Syndrome, event: EventType | None, reason: str) -> None:
        super().__init__(reason)
        self.syndrome = syndrome
        self.event = event


class NotReady(Exception):
    """No receive is posted."""


def remote_access(error: Exception) -> Nak:
    """The refusal of a remote address that is not permitted, or no memory."""
    return Nak(Syndrome.NAK_REMOTE_ACCESS, EventType.WQ_ACCESS_ERROR, str(error))
