"""Why a responder does not carry out a request."""

from __future__ import annotations

from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.device.rdma.vocabulary import AsyncEvent


class Nak(Exception):
    """A request that is refused: the syndrome for the peer, the event for our software."""

    def __init__(self, syndrome: Syndrome, event: AsyncEvent | None, reason: str) -> None:
        super().__init__(reason)
        self.syndrome = syndrome
        self.event = event


class NotReady(Exception):
    """No receive is posted."""


def remote_access(error: Exception) -> Nak:
    """The refusal of a remote address that is not permitted, or no memory."""
    return Nak(Syndrome.NAK_REMOTE_ACCESS, AsyncEvent.WQ_ACCESS_ERROR, str(error))
