"""The exceptions for requests that a responder does not carry out."""

from __future__ import annotations

from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.device.rdma.vocabulary import AsyncEvent


class Nak(Exception):
    """A request that is refused: NAK syndrome for the peer, asynchronous event for our software."""

    def __init__(self, syndrome: Syndrome, event: AsyncEvent | None, reason: str) -> None:
        super().__init__(reason)
        self.syndrome = syndrome
        self.event = event


class NotReady(Exception):
    """A request cannot be carried out now: no receive is posted for it."""


def remote_access(error: Exception) -> Nak:
    """Return the refusal of a remote address that is not permitted or is not memory."""
    return Nak(Syndrome.NAK_REMOTE_ACCESS, AsyncEvent.WQ_ACCESS_ERROR, str(error))
