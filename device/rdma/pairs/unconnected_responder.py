"""The answering half of queue pairs without a connection: they answer nothing."""

from __future__ import annotations

from bluebridge.device.fabric.messages import Request
from bluebridge.device.rdma.pairs.engines import ReceiveEngine


class UnconnectedResponder(ReceiveEngine):
    """Keeps the PSN that software chose, which it may ask for; `msn` stays 0."""

    __slots__ = ()

    def __init__(self) -> None:
        self.psn = 0
        self.msn = 0

    def receive(self, request: Request) -> None:
        """Requests are for connected queue pairs: ignored."""

    def abort(self) -> None:
        """No message ever moves in parts."""
